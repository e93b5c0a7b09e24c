//! The Control API: what the process has in use, for whoever is on the machine. As in APISIX it
//! asks for no key, so it listens on this machine only; it changes nothing, shows no
//! secrets, and helps nobody to find any out.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/schema` | schemas of resources and plugins |
//! | `GET /v1/routes`, `/v1/route/{id}`, the same of services and upstreams | resources, completed with their defaults |
//! | `GET /v1/plugin_metadatas`, `/v1/plugin_metadata/{name}` | metadata of plugins |
//! | `GET /v1/healthcheck`, `/v1/healthcheck/{type}/{id}` | upstreams with health checks |
//! | `POST /v1/gc` | nothing: there is no garbage to collect |
//! | `PUT /v1/plugins/reload` | `done`: plugins are part of the binary |
//! | `POST /lockgate/v1/explain` | what becomes of a request |

mod health;
mod inventory;
mod schemas;
mod shown;

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use pingora_http::RequestHeader;
use serde_json::{Value, json};

use crate::config::catalogue::Catalogue;
use crate::config::kind::{Key, Kind};
use crate::config::snapshot::Live;
use crate::endpoint::{Answer, Api, Taken};
use crate::explain::{self, Asker, MAX_QUESTION, Rules};

use inventory::{Held, only};
pub(crate) use inventory::{Inventory, Place};

/// The Control API.
pub(crate) struct Control {
    /// The resources in use.
    pub(crate) inventory: Inventory,
    /// The plugins.
    pub(crate) catalogue: Catalogue,
    /// What requests see.
    pub(crate) live: Arc<Live>,
    /// What the settings say about requests.
    pub(crate) rules: Rules,
    /// What `Server` says.
    pub(crate) server_token: String,
}

/// What is asked: the path's segments, after a known beginning.
pub(crate) enum Wanted {
    Schema,
    List(Kind),
    One(Kind, String),
    Health,
    HealthOf(String, Option<String>),
    Gc,
    Reload,
    Explain,
}

#[async_trait]
impl Api for Control {
    type Request = Wanted;

    fn take(&self, head: &RequestHeader, _: Option<IpAddr>) -> Taken<Wanted> {
        match wanted(head.method.as_str(), head.uri.path()) {
            Some(Wanted::Explain) => Taken::Read(Wanted::Explain, MAX_QUESTION),
            // Some clients send one, `{}`; it says nothing.
            Some(wanted) => Taken::Read(wanted, MAX_QUESTION),
            None => Taken::Done(Answer::page(404)),
        }
    }

    async fn answer(&self, wanted: Wanted, body: Vec<u8>) -> Answer {
        match wanted {
            Wanted::Schema => Answer::json(200, schemas::all(&self.catalogue).to_string()),
            Wanted::List(kind) => self.list(kind).await,
            Wanted::One(kind, id) => self.one(kind, &id).await,
            Wanted::Health => self.health().await,
            Wanted::HealthOf(kind, id) => self.health_of(&kind, id.as_deref()).await,
            Wanted::Gc => Answer::text(200, ""),
            Wanted::Reload => Answer::text(200, "done"),
            Wanted::Explain => {
                let snapshot = self.live.snapshot();
                explain::answer(&snapshot, &self.rules, &body, Asker::Anybody)
            }
        }
    }

    fn fields(&self, _: &RequestHeader, _: &Answer) -> Vec<(&'static str, String)> {
        vec![("Server", self.server_token.clone())]
    }
}

/// `None` when nothing is there.
fn wanted(method: &str, path: &str) -> Option<Wanted> {
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    if let ("POST", explain::PATH) = (method, &*path) {
        return Some(Wanted::Explain);
    }
    let segments: Vec<&str> = path.strip_prefix("/v1/")?.split('/').collect();
    let reads = matches!(method, "GET" | "HEAD");
    let of = |word: &str| match word {
        "route" => Some(Kind::Route),
        "service" => Some(Kind::Service),
        "upstream" => Some(Kind::Upstream),
        "plugin_metadata" => Some(Kind::PluginMetadata),
        _ => None,
    };
    Some(match segments[..] {
        ["schema"] if reads => Wanted::Schema,
        ["healthcheck"] if reads => Wanted::Health,
        ["healthcheck", kind] if reads => Wanted::HealthOf(kind.to_owned(), None),
        ["healthcheck", kind, id] if reads => {
            Wanted::HealthOf(kind.to_owned(), Some(id.to_owned()))
        }
        ["plugin_metadata"] if reads => Wanted::List(Kind::PluginMetadata),
        ["gc"] if method == "POST" => Wanted::Gc,
        ["plugins", "reload"] if method == "PUT" => Wanted::Reload,
        [many] if reads => Wanted::List(of(many.strip_suffix('s')?)?),
        [one, id] if reads => Wanted::One(of(one)?, id.to_owned()),
        _ => return None,
    })
}

impl Control {
    async fn list(&self, kind: Kind) -> Answer {
        let held = match self.inventory.list(only(kind)).await {
            Ok(held) => held,
            Err(error) => return unavailable(&error),
        };
        let items: Vec<Value> = held.into_iter().map(|held| self.shown(held)).collect();
        Answer::json(200, Value::Array(items).to_string())
    }

    async fn one(&self, kind: Kind, id: &str) -> Answer {
        match self.inventory.get(&Key::new(kind, id)).await {
            Ok(Some(held)) => Answer::json(200, self.shown(held).to_string()),
            Ok(None) => {
                let what = match kind {
                    Kind::Route => "route",
                    Kind::Service => "service",
                    Kind::Upstream => "upstream",
                    _ => "plugin metadata",
                };
                Answer::error(404, format!("{what}[{id}] not found"))
            }
            Err(error) => unavailable(&error),
        }
    }

    /// A resource as it is shown. Metadata stands alone, others have an envelope.
    fn shown(&self, held: Held) -> Value {
        let value = shown::complete(&held.key, held.value, &self.catalogue);
        if held.key.kind == Kind::PluginMetadata {
            return value;
        }
        json!({
            "key": held.path,
            "value": value,
            "createdIndex": held.created,
            "modifiedIndex": held.modified,
        })
    }
}

fn unavailable(error: &str) -> Answer {
    Answer::error(503, error)
}
