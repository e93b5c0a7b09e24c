//! Tests of plugins without a socket: a request is a line, time moves by hand.
//!
//! The plugin is built as the gateway builds it, schema check included. Its request phases run in
//! order; [`Run::respond`] then plays an upstream's answer through the response phases.
//!
//! ```
//! # use lockgate_plugin::testing::run;
//! # use lockgate_plugin::*;
//! # use serde_json::json;
//! # #[derive(serde::Deserialize, schemars::JsonSchema)]
//! # struct Conf { text: String }
//! # struct Stop(Conf);
//! # impl Plugin for Stop {
//! #     const NAME: &'static str = "stop";
//! #     const PRIORITY: i32 = 1;
//! #     const PHASES: Phases = Phases::ACCESS;
//! #     type Conf = Conf;
//! #     fn build(conf: Conf, _: &BuildCx<'_>) -> Result<Stop, Problems> { Ok(Stop(conf)) }
//! #     fn access<'a>(&'a self, _: &'a mut Ctx<'_>) -> Outcome<'a> {
//! #         Ok(Step::Reply(Reply::text(403, self.0.text.clone())))
//! #     }
//! # }
//! let answer = run::<Stop>(json!({"text": "no"})).from("192.0.2.1").get("/").expect_reply(403);
//! assert_eq!(answer.text(), "no");
//! ```
// This module exists to fail tests.
#![allow(clippy::panic, clippy::expect_used)]

mod answer;
mod exchange;
mod head;
mod instance;
#[cfg(test)]
mod tests;
mod world;

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

pub use self::answer::Answer;
pub use self::exchange::Run;
use self::head::{Fields, Req};
pub use self::instance::Instance;
use self::world::World;
use crate::build_cx::BuildCx;
use crate::phase::Phases;
use crate::plugin::{CredentialDef, Plugin, PluginDef, def};
use crate::problem::Problems;
use crate::request::{
    Conn, Consumer, ConsumerCredential, RouteInfo, ServerFacts, Target, Timing, Tls, Work,
};

/// A test of one plugin with this configuration.
pub fn run<P: Plugin>(conf: Value) -> Request {
    run_def(def::<P>(), conf)
}

/// The same for a registry entry, which also knows the plugin's credentials and metadata.
pub fn run_def(def: PluginDef, conf: Value) -> Request {
    Request {
        plugin: Source::Fresh(Box::new(Setup {
            def,
            conf,
            world: World::default(),
        })),
        head: Head::default(),
    }
}

/// A request that meets no plugin, for variables, expressions and templates.
pub fn request() -> Request {
    run::<Nothing>(Value::Object(serde_json::Map::new()))
}

/// A plugin that does not act.
struct Nothing;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoConf {}

impl Plugin for Nothing {
    const NAME: &'static str = "nothing";
    const PRIORITY: i32 = 0;
    const PHASES: Phases = Phases::NONE;
    type Conf = NoConf;

    fn build(_: NoConf, _: &BuildCx<'_>) -> Result<Nothing, Problems> {
        Ok(Nothing)
    }
}

/// What is wrong with a configuration, one problem a line. Fails the test when nothing is.
#[track_caller]
pub fn build_error<P: Plugin>(conf: Value) -> String {
    run::<P>(conf).build_error()
}

/// A request to be, and the plugin it meets. Finished by [`get`](Request::get),
/// [`post`](Request::post) or [`send`](Request::send).
#[must_use]
pub struct Request {
    plugin: Source,
    head: Head,
}

enum Source {
    Fresh(Box<Setup>),
    Built(Instance),
}

struct Setup {
    def: PluginDef,
    conf: Value,
    world: World,
}

type Prepare = Box<dyn FnOnce(&mut Work)>;

struct Head {
    method: Option<String>,
    version: u8,
    fields: Fields,
    peer: SocketAddr,
    tls: Option<Tls>,
    body: Option<Bytes>,
    prepare: Vec<Prepare>,
}

impl Default for Head {
    fn default() -> Head {
        Head {
            method: None,
            version: 11,
            fields: Fields::default(),
            peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 40_000),
            tls: None,
            body: None,
            prepare: Vec::new(),
        }
    }
}

/// The surroundings of the plugin; set before it is built.
impl Request {
    #[track_caller]
    fn setup(&mut self) -> &mut Setup {
        match &mut self.plugin {
            Source::Fresh(setup) => setup,
            Source::Built(_) => panic!("the plugin is built already"),
        }
    }

    /// The plugin's metadata; checked when the registry entry knows its type.
    #[track_caller]
    pub fn metadata(mut self, metadata: Value) -> Request {
        let setup = self.setup();
        if let Some((_, check)) = setup.def.metadata {
            let mut out = Problems::default();
            check(&metadata, &mut out);
            assert!(out.is_empty(), "metadata: {out}");
        }
        setup.world.metadata = metadata;
        self
    }

    /// The plugin's part of `plugin_attr`.
    #[track_caller]
    pub fn attr(mut self, attr: Value) -> Request {
        self.setup().world.attr = attr;
        self
    }

    /// A process-wide object.
    #[track_caller]
    pub fn shared<T: Any + Send + Sync>(mut self, object: Arc<T>) -> Request {
        self.setup().world.shared.insert(object);
        self
    }

    /// Consumers: user name, plugin, its credential definition, the credential.
    #[track_caller]
    pub fn consumers<'a>(
        mut self,
        list: impl IntoIterator<Item = (&'a str, &'a str, CredentialDef, Value)>,
    ) -> Request {
        let table = &mut self.setup().world.consumers;
        for (username, plugin, def, credential) in list {
            let consumer = table.name(username);
            let (key, conf) = match (def.parse)(&credential) {
                Ok(parsed) => parsed,
                Err(out) => panic!("credential of {username}: {out}"),
            };
            let found = ConsumerCredential {
                consumer,
                credential_id: None,
                conf,
                version: 1,
            };
            table.learn(plugin, key, found);
        }
        self
    }

    /// A consumer with a credential for this very plugin; needs [`run_def`] with an entry that has
    /// `credential`.
    #[track_caller]
    pub fn consumer(mut self, username: &str, credential: Value) -> Request {
        let def = self.setup().def;
        let credentials = def
            .credential
            .expect("the registry entry has no credential type");
        self.consumers([(username, def.name, credentials, credential)])
    }

    /// A consumer without credentials, for `anonymous_consumer`, or with labels and a group. Comes
    /// before the credentials of the same consumer.
    #[track_caller]
    pub fn known(mut self, consumer: Consumer) -> Request {
        self.setup().world.consumers.insert(consumer);
        self
    }

    /// What is wrong with the configuration, one problem a line. Fails the test when nothing is.
    #[track_caller]
    pub fn build_error(self) -> String {
        let Source::Fresh(setup) = self.plugin else {
            panic!("the plugin is built already")
        };
        match setup.build() {
            Ok(_) => panic!("the configuration was accepted"),
            Err(out) => out.to_string(),
        }
    }

    /// Builds the plugin, for several requests to one instance. What was said about the request
    /// so far is forgotten.
    #[track_caller]
    pub fn build(self) -> Instance {
        match self.plugin {
            Source::Built(instance) => instance,
            Source::Fresh(setup) => match setup.build() {
                Ok(instance) => instance,
                Err(out) => panic!("the configuration was refused:\n{out}"),
            },
        }
    }
}

/// The request.
impl Request {
    /// The method; `GET` unless set.
    pub fn method(mut self, method: &str) -> Request {
        self.head.method = Some(method.to_owned());
        self
    }

    /// The HTTP version times ten; 11 unless set.
    pub fn version(mut self, version: u8) -> Request {
        self.head.version = version;
        self
    }

    /// The client: `192.0.2.1`, `::1`, or with a port `[::1]:80`.
    #[track_caller]
    pub fn from(mut self, client: &str) -> Request {
        let addr = client
            .parse::<IpAddr>()
            .map(|ip| SocketAddr::new(ip, 40_000));
        self.head.peer = addr.or_else(|_| client.parse()).expect("an address");
        self
    }

    /// One more header field.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Request {
        self.head.fields.add(name, value.as_ref());
        self
    }

    /// The `Host`, port included; `gateway.test` unless set.
    pub fn host(mut self, host: &str) -> Request {
        self.head.fields.remove("host");
        self.header("Host", host)
    }

    /// The request comes over TLS, with this server name.
    pub fn tls(mut self, sni: &str) -> Request {
        self.head.tls = Some(Tls {
            version: "TLSv1.3".into(),
            cipher: "TLS_AES_128_GCM_SHA256".into(),
            sni: Some(sni.into()),
            ..Tls::default()
        });
        self
    }

    /// The request body, read before the phases run. Sets `Content-Length`.
    pub fn body(mut self, body: impl Into<Bytes>) -> Request {
        let body = body.into();
        self.head.fields.remove("content-length");
        self.head
            .fields
            .add("Content-Length", body.len().to_string().as_bytes());
        self.head.body = Some(body);
        self
    }

    /// The matched route; route `1` without service unless set.
    pub fn route(self, route: RouteInfo) -> Request {
        self.work(move |work| work.route = Some(Arc::new(route)))
    }

    /// Anything else that is known before the phases run.
    pub fn work(mut self, prepare: impl FnOnce(&mut Work) + 'static) -> Request {
        self.head.prepare.push(Box::new(prepare));
        self
    }

    /// Sends it, with the method that was set (`GET` unless set).
    #[track_caller]
    pub fn get(self, target: &str) -> Run {
        self.send(target)
    }

    /// Sends it with a body; `POST` unless another method was set.
    #[track_caller]
    pub fn post(mut self, target: &str, body: impl Into<Bytes>) -> Run {
        self.head.method.get_or_insert_with(|| "POST".to_owned());
        self.body(body).send(target)
    }

    /// Sends it: runs the request phases.
    #[track_caller]
    pub fn send(mut self, target: &str) -> Run {
        let head = std::mem::take(&mut self.head);
        let instance = self.build();
        let mut fields = head.fields;
        if fields.first("host").is_none() {
            fields.add("Host", b"gateway.test");
        }
        let req = Req {
            method: head.method.unwrap_or_else(|| "GET".to_owned()),
            target: target.to_owned(),
            version: head.version,
            fields,
        };
        let parsed = match Target::parse(target.as_bytes()) {
            Ok(parsed) => parsed,
            Err(bad) => panic!("target {target}: {bad}"),
        };
        let port = if head.tls.is_some() { 9443 } else { 9080 };
        let conn = Conn {
            peer: head.peer,
            local: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            tls: head.tls.map(Arc::new),
            id: 1,
            server: Arc::new(ServerFacts {
                hostname: "gateway-1".into(),
                server_token: "APISIX/3.18.0".into(),
                pid: 1,
            }),
        };
        let clock = &instance.world.clock;
        let timing = Timing {
            start: clock.now(),
            wall: clock.wall(),
        };
        let mut work = Work::new(conn, parsed, timing);
        work.route = Some(Arc::new(RouteInfo {
            id: "1".into(),
            ..RouteInfo::default()
        }));
        work.received_body = head.body.as_ref().map_or(0, |body| body.len() as u64);
        work.body = head.body;
        for prepare in head.prepare {
            prepare(&mut work);
        }
        Run::start(instance, req, work)
    }
}

impl Setup {
    fn build(self) -> Result<Instance, Problems> {
        let world = Arc::new(self.world);
        Instance::new(self.def, &self.conf, world)
    }
}
