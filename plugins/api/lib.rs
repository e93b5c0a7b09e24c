//! The contract between lockgate and its plugins.
//!
//! A plugin is a type that implements [`Plugin`]: a configuration, the phases it
//! acts in, and a method for each of them. It sees a request only through
//! [`Ctx`], so it runs unchanged on every lane of the proxy, and it knows
//! neither the proxy nor other plugins.
//!
//! Order of reading: `docs/writing-a-plugin.md`, [`Plugin`], [`Ctx`], [`Step`], then `plugins/echo.rs`.
#![cfg_attr(test, allow(clippy::needless_pass_by_value))] // `check(json!(…))` reads best by value.

pub mod body_args;
pub mod build_cx;
pub mod ctx;
pub mod edits;
pub mod expr;
pub mod header;
pub mod network;
pub mod pattern;
pub mod phase;
pub mod plugin;
pub mod problem;
pub mod reply;
pub mod request;
pub mod schema;
pub mod target;
pub mod template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod var;
pub mod view;

pub use build_cx::{BuildCx, Shared, StateStore};
pub use ctx::{Chunk, Ctx, Env, Gates};
pub use edits::{HeaderEdits, HeaderOp, RequestEdits, ResponseEdits};
pub use expr::Expr;
pub use header::HeaderKey;
pub use network::network;
pub use pattern::Pattern;
pub use phase::{Phase, Phases};
pub use plugin::{
    Credential, CredentialDef, Flow, Handler, Outcome, Plugin, PluginDef, PluginError, Step, def,
};
pub use problem::{Problem, Problems};
pub use reply::{Body, Reply};
pub use request::{
    Conn, Consumer, ConsumerCredential, Consumers, Origin, Picked, RouteInfo, Target, Timing, Tls,
    Work,
};
pub use template::Template;
pub use var::{Lookup, Var, VarSource, VarValue};
pub use view::{ReqView, RespView};
