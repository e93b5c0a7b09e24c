//! The contract: [`Plugin`] is what an author writes, [`Handler`] what the chain calls.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::build_cx::BuildCx;
use crate::ctx::{Chunk, Ctx};
use crate::header::HeaderKey;
use crate::phase::Phases;
use crate::problem::{Problem, Problems};
use crate::reply::Reply;
use crate::schema;
use crate::var::Var;

/// What a waiting step decided in the end.
pub enum Flow {
    /// Go on with the next plugin.
    Next,
    /// Answer the client now.
    Reply(Reply),
}

/// What happens next.
pub enum Step<'a> {
    /// Go on with the next plugin.
    Next,
    /// Answer the client now; later plugins of the request phases do not run.
    Reply(Reply),
    /// The decision takes a while: await this. The only case that allocates.
    Wait(Pin<Box<dyn Future<Output = Result<Flow, PluginError>> + Send + 'a>>),
}

/// What the request phases of a plugin return.
pub type Outcome<'a> = Result<Step<'a>, PluginError>;

/// A plugin failed on a request: the client gets 500, the log gets the text and the plugin's name.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    /// What failed. Not shown to clients.
    pub message: String,
    /// What the client gets instead of the stock 500, when the plugin's contract says so.
    pub reply: Option<Reply>,
}

impl PluginError {
    /// A failure with the stock 500 answer.
    pub fn new(message: impl Into<String>) -> PluginError {
        PluginError {
            message: message.into(),
            reply: None,
        }
    }

    /// A failure with the plugin's own answer.
    #[must_use]
    pub fn answer(mut self, reply: Reply) -> PluginError {
        self.reply = Some(reply);
        self
    }
}

/// A plugin: a configuration and what to do in each phase.
///
/// Implement the methods of the phases named in [`PHASES`](Plugin::PHASES) and no others. `plugins/echo.rs`
/// is the example to copy.
pub trait Plugin: Sized + Send + Sync + 'static {
    /// The name in configurations, APISIX's where it has one.
    const NAME: &'static str;
    /// Higher runs first; APISIX's number where it has one.
    const PRIORITY: i32;
    /// The phases it may act in.
    const PHASES: Phases;
    /// The configuration: serde gives defaults and types, schemars the published schema.
    type Conf: DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// Rules that a schema cannot express. Reports all violations.
    fn check(conf: &Self::Conf, out: &mut Problems) {
        let _ = (conf, out);
    }

    /// Compiles patterns and opens shared state. No network, no blocking.
    ///
    /// # Errors
    /// Everything that is wrong with the configuration and was not found by `check`.
    fn build(conf: Self::Conf, bx: &BuildCx<'_>) -> Result<Self, Problems>;

    /// The phases this instance acts in, at most [`PHASES`](Plugin::PHASES).
    fn phases(&self) -> Phases {
        Self::PHASES
    }

    /// Whether this instance uses a variable of which `is` holds. Decides whether the request body
    /// is read before its phases, and finds misspelt names.
    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        let _ = is;
        false
    }

    /// What this instance would work with on a request, by name: the key of a limit, say. For
    /// `lockgate explain`: it only looks, counts nothing and sends nothing, and shows no secrets.
    fn explain(&self, cx: &Ctx<'_>) -> Vec<(&'static str, String)> {
        let _ = cx;
        Vec::new()
    }

    /// First look at the request.
    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let _ = cx;
        unwritten(Self::NAME)
    }

    /// Decisions that need to know the consumer.
    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let _ = cx;
        unwritten(Self::NAME)
    }

    /// A node has been chosen.
    fn before_proxy<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let _ = cx;
        unwritten(Self::NAME)
    }

    /// The response head is known.
    ///
    /// # Errors
    /// The failure is logged; the response goes on without this plugin's changes.
    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        let _ = cx;
        Ok(())
    }

    /// A piece of the response body.
    ///
    /// # Errors
    /// The failure is logged and the client's connection is cut: a body cannot be taken back.
    fn body_filter(&self, chunk: &mut Chunk, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        let _ = (chunk, cx);
        Ok(())
    }

    /// The exchange is over.
    fn log(&self, cx: &mut Ctx<'_>) {
        let _ = cx;
    }
}

fn unwritten<'a>(name: &'static str) -> Outcome<'a> {
    Err(PluginError::new(format!(
        "plugin {name} is linked in a phase it does not implement"
    )))
}

/// A built plugin with its type erased: what a plan links to.
pub trait Handler: Send + Sync + 'static {
    /// The plugin's name.
    fn name(&self) -> &'static str;
    /// The phases this instance acts in.
    fn phases(&self) -> Phases;
    /// See [`Plugin::any_var`].
    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool;
    /// See [`Plugin::explain`].
    fn explain(&self, cx: &Ctx<'_>) -> Vec<(&'static str, String)>;
    /// See [`Plugin::rewrite`].
    #[allow(clippy::missing_errors_doc)]
    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a>;
    /// See [`Plugin::access`].
    #[allow(clippy::missing_errors_doc)]
    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a>;
    /// See [`Plugin::before_proxy`].
    #[allow(clippy::missing_errors_doc)]
    fn before_proxy<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a>;
    /// See [`Plugin::header_filter`].
    #[allow(clippy::missing_errors_doc)]
    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError>;
    /// See [`Plugin::body_filter`].
    #[allow(clippy::missing_errors_doc)]
    fn body_filter(&self, chunk: &mut Chunk, cx: &mut Ctx<'_>) -> Result<(), PluginError>;
    /// See [`Plugin::log`].
    fn log(&self, cx: &mut Ctx<'_>);
}

struct Erased<P>(P);

impl<P: Plugin> Handler for Erased<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }
    fn phases(&self) -> Phases {
        self.0.phases()
    }
    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.0.any_var(is)
    }
    fn explain(&self, cx: &Ctx<'_>) -> Vec<(&'static str, String)> {
        self.0.explain(cx)
    }
    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        self.0.rewrite(cx)
    }
    fn access<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        self.0.access(cx)
    }
    fn before_proxy<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        self.0.before_proxy(cx)
    }
    fn header_filter(&self, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        self.0.header_filter(cx)
    }
    fn body_filter(&self, chunk: &mut Chunk, cx: &mut Ctx<'_>) -> Result<(), PluginError> {
        self.0.body_filter(chunk, cx)
    }
    fn log(&self, cx: &mut Ctx<'_>) {
        self.0.log(cx);
    }
}

/// The consumer side of an authentication plugin: what a consumer's `plugins.NAME` holds.
pub trait Credential: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The attribute that [`lookup`](Credential::lookup) returns, for messages: `key`, `username`.
    const ATTRIBUTE: &'static str;

    /// What a request presents to be recognised; unique among consumers.
    fn lookup(&self) -> &str;

    /// Rules that a schema cannot express.
    fn check(&self, out: &mut Problems) {
        let _ = out;
    }
}

/// The erased form of a [`Credential`].
#[derive(Clone, Copy)]
pub struct CredentialDef {
    /// The JSON Schema.
    pub schema: fn() -> Value,
    /// Parses and checks; returns the lookup key and the typed value.
    #[allow(clippy::type_complexity)]
    pub parse: fn(&Value) -> Result<(String, Arc<dyn Any + Send + Sync>), Problems>,
    /// See [`Credential::ATTRIBUTE`].
    pub attribute: &'static str,
}

/// A plugin in the registry. Made by [`def`].
#[derive(Clone, Copy)]
pub struct PluginDef {
    /// The name in configurations.
    pub name: &'static str,
    /// Higher runs first.
    pub priority: i32,
    /// The phases it may act in.
    pub phases: Phases,
    /// The JSON Schema of its configuration.
    pub schema: fn() -> Value,
    /// Checks a configuration without building; reports everything.
    pub check: fn(&Value, &mut Problems),
    /// Checks and builds.
    pub build: fn(&Value, &BuildCx<'_>) -> Result<Arc<dyn Handler>, Problems>,
    /// Present on authentication plugins.
    pub credential: Option<CredentialDef>,
    /// The JSON Schema of its `plugin_metadata` resource and the check of a value.
    pub metadata: Option<(fn() -> Value, fn(&Value, &mut Problems))>,
    /// Whether a route's own instance silences the global one (`run_policy = prefer_route`).
    pub prefer_route: bool,
}

/// The registry entry of a plugin.
///
/// ```text
/// pub static ALL: &[PluginDef] = &[def::<Echo>(), def::<KeyAuth>().credential::<Key>()];
/// ```
pub const fn def<P: Plugin>() -> PluginDef {
    PluginDef {
        name: P::NAME,
        priority: P::PRIORITY,
        phases: P::PHASES,
        schema: schema::of::<P::Conf>,
        check: |value, out| {
            if let Err(problems) = parse::<P>(value) {
                out.extend(problems);
            }
        },
        build: |value, bx| {
            let conf = parse::<P>(value)?;
            let plugin = P::build(conf, bx)?;
            Ok(Arc::new(Erased(plugin)))
        },
        credential: None,
        metadata: None,
        prefer_route: false,
    }
}

fn parse<P: Plugin>(value: &Value) -> Result<P::Conf, Problems> {
    let conf: P::Conf = typed(value)?;
    let mut out = Problems::default();
    P::check(&conf, &mut out);
    out.into_result()?;
    Ok(conf)
}

/// Checks a value against its type's schema, then reads it.
///
/// # Errors
/// All violations of the schema; when there is none, the one thing serde disagrees with.
pub fn typed<T: DeserializeOwned + JsonSchema + 'static>(value: &Value) -> Result<T, Problems> {
    let mut out = Problems::default();
    schema::validate(&schema::cached::<T>(), value, &mut out);
    out.into_result()?;
    let value = schema::settle(&schema::cached::<T>(), value);
    T::deserialize(value.as_ref()).map_err(|e| Problems::from(Problem::new("", e.to_string())))
}

impl PluginDef {
    /// Adds the consumer side.
    #[must_use]
    pub const fn credential<C: Credential>(mut self) -> PluginDef {
        self.credential = Some(CredentialDef {
            schema: schema::of::<C>,
            parse: |value| {
                let credential: C = typed(value)?;
                let mut out = Problems::default();
                credential.check(&mut out);
                out.into_result()?;
                Ok((credential.lookup().to_owned(), Arc::new(credential)))
            },
            attribute: C::ATTRIBUTE,
        });
        self
    }

    /// Adds the type of its `plugin_metadata` resource.
    #[must_use]
    pub const fn metadata<M: DeserializeOwned + JsonSchema + 'static>(mut self) -> PluginDef {
        self.metadata = Some((schema::of::<M>, |value, out| {
            if let Err(problems) = typed::<M>(value) {
                out.extend(problems);
            }
        }));
        self
    }

    /// A route's own instance silences the global one.
    #[must_use]
    pub const fn prefer_route(mut self) -> PluginDef {
        self.prefer_route = true;
        self
    }
}

/// The headers that name an authenticated consumer to the upstream.
pub(crate) struct ConsumerHeaders {
    pub(crate) username: HeaderKey,
    pub(crate) credential: HeaderKey,
    pub(crate) custom_id: HeaderKey,
}

pub(crate) fn consumer_headers() -> &'static ConsumerHeaders {
    static NAMES: LazyLock<ConsumerHeaders> = LazyLock::new(|| ConsumerHeaders {
        username: HeaderKey::constant("X-Consumer-Username"),
        credential: HeaderKey::constant("X-Credential-Identifier"),
        custom_id: HeaderKey::constant("X-Consumer-Custom-ID"),
    });
    &NAMES
}
