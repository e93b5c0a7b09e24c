//! The native plugins. `ls plugins` is the catalogue, [`ALL`] the registry.
//!
//! `echo.rs` is the example to copy; `docs/writing-a-plugin.md` builds one step by step.
#![cfg_attr(test, allow(clippy::needless_pass_by_value))] // `check(json!(…))` reads best by value.

pub mod auth;
pub mod echo;
pub mod observe;
pub mod security;
mod text;
pub mod traffic;
pub mod transform;

use lockgate_plugin::{PluginDef, def};

use auth::key_auth::{Key, KeyAuth};
use echo::Echo;
use observe::prometheus::{self, Prometheus};
use security::cors::{self, Cors};
use security::ip_restriction::IpRestriction;
use security::ua_restriction::UaRestriction;
use security::uri_blocker::UriBlocker;
use traffic::fault_injection::FaultInjection;
use traffic::limit::Limits;
use traffic::limit_conn::LimitConn;
use traffic::limit_count::{self, LimitCount};
use traffic::limit_req::LimitReq;
use traffic::mocking::Mocking;
use traffic::sliding_window_limiter::SlidingWindowLimiter;
use transform::proxy_rewrite::ProxyRewrite;
use transform::redirect::Redirect;
use transform::request_id::RequestId;
use transform::response_rewrite::ResponseRewrite;

/// Every plugin.
pub static ALL: &[PluginDef] = &[
    def::<RequestId>(),
    def::<FaultInjection>(),
    def::<Mocking>(),
    def::<Cors>().metadata::<cors::Metadata>(),
    def::<IpRestriction>(),
    def::<UaRestriction>(),
    def::<UriBlocker>(),
    def::<KeyAuth>().credential::<Key>(),
    def::<ProxyRewrite>(),
    def::<LimitConn>(),
    def::<LimitCount>().metadata::<limit_count::Metadata>(),
    def::<LimitReq>(),
    def::<Limits>(),
    def::<SlidingWindowLimiter>(),
    def::<Redirect>(),
    def::<ResponseRewrite>(),
    def::<Prometheus>()
        .metadata::<prometheus::Metadata>()
        .prefer_route(),
    def::<Echo>(),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_priorities_fall() {
        let names: HashSet<&str> = ALL.iter().map(|def| def.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(
            ALL.windows(2)
                .all(|pair| pair[0].priority >= pair[1].priority)
        );
    }

    #[test]
    fn every_schema_is_an_object_schema() {
        for def in ALL {
            let schema = (def.schema)();
            assert_eq!(schema["type"], "object", "{}", def.name);
        }
    }
}
