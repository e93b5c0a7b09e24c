//! The phases of a request, in the order in which they run.

/// One phase. Names and order are those of Apache APISIX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Phase {
    /// First look at the request; authentication and rewriting. May answer.
    Rewrite = 0,
    /// Decisions that need to know the consumer; limits. May answer.
    Access = 1,
    /// A node has been chosen; last changes to the upstream request. May answer.
    BeforeProxy = 2,
    /// The response head is known. Also runs for answers made by the gateway.
    HeaderFilter = 3,
    /// A piece of the response body. Also runs for answers made by the gateway.
    BodyFilter = 4,
    /// The exchange is over, also after a failure.
    Log = 5,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 6] = [
        Phase::Rewrite,
        Phase::Access,
        Phase::BeforeProxy,
        Phase::HeaderFilter,
        Phase::BodyFilter,
        Phase::Log,
    ];

    /// The name used by configuration and reports, such as `header_filter`.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Rewrite => "rewrite",
            Phase::Access => "access",
            Phase::BeforeProxy => "before_proxy",
            Phase::HeaderFilter => "header_filter",
            Phase::BodyFilter => "body_filter",
            Phase::Log => "log",
        }
    }
}

/// A set of phases.
///
/// ```
/// # use lockgate_plugin::{Phase, Phases};
/// const P: Phases = Phases::REWRITE.and(Phases::HEADER_FILTER);
/// assert!(P.has(Phase::HeaderFilter) && !P.has(Phase::Access));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases(u8);

impl Phases {
    /// No phase at all.
    pub const NONE: Phases = Phases(0);
    /// See [`Phase::Rewrite`].
    pub const REWRITE: Phases = Phases(1);
    /// See [`Phase::Access`].
    pub const ACCESS: Phases = Phases(1 << 1);
    /// See [`Phase::BeforeProxy`].
    pub const BEFORE_PROXY: Phases = Phases(1 << 2);
    /// See [`Phase::HeaderFilter`].
    pub const HEADER_FILTER: Phases = Phases(1 << 3);
    /// See [`Phase::BodyFilter`].
    pub const BODY_FILTER: Phases = Phases(1 << 4);
    /// See [`Phase::Log`].
    pub const LOG: Phases = Phases(1 << 5);

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Phases) -> Phases {
        Phases(self.0 | other.0)
    }

    /// This set without another.
    #[must_use]
    pub const fn without(self, other: Phases) -> Phases {
        Phases(self.0 & !other.0)
    }

    /// Whether `phase` is in the set.
    pub const fn has(self, phase: Phase) -> bool {
        self.0 & (1 << phase as u8) != 0
    }

    /// Whether every phase of `other` is in the set.
    pub const fn contains(self, other: Phases) -> bool {
        self.0 & other.0 == other.0
    }
}
