//! Services, and what is inside them: upstreams, routes, stream routes.

use lockgate_plugin::Problem;
use serde_json::{Value, json};

use super::convert::{Made, Managed, Members, described, join, taken};
use super::{NAME_LABEL, SERVICE_LABEL, defaults};
use crate::config::kind::Kind;

const SERVICE: &[&str] = &[
    "id",
    "name",
    "description",
    "labels",
    "upstream",
    "upstreams",
    "plugins",
    "path_prefix",
    "strip_path_prefix",
    "hosts",
    "routes",
    "stream_routes",
];
const ROUTE: &[&str] = &[
    "id",
    "name",
    "description",
    "labels",
    "hosts",
    "uris",
    "priority",
    "timeout",
    "vars",
    "methods",
    "enable_websocket",
    "remote_addrs",
    "plugins",
    "filter_func",
];
const STREAM_ROUTE: &[&str] = &[
    "id",
    "name",
    "description",
    "labels",
    "plugins",
    "remote_addr",
    "server_addr",
    "server_port",
    "sni",
];

/// Name and id of the service around something.
type Around<'a> = (&'a str, &'a str);

impl Made {
    pub(super) fn service(&mut self, item: &Members, place: &str) {
        self.known(item, SERVICE, place);
        for lost in ["path_prefix", "strip_path_prefix"] {
            if item.get(lost).is_some_and(|value| !value.is_null()) {
                let text = "has no effect in APISIX: ADC leaves it out there";
                let hint = "write the prefix into `uris`, and `proxy-rewrite` to take it away";
                self.out
                    .push(Problem::new(join(place, lost), text).hint(hint));
            }
        }
        let Some((name, id)) = self.named(item, place, "") else {
            return;
        };
        let mut service = taken(item, &["name", "plugins", "hosts"]);
        described(item, &mut service, Managed::Yes);
        if let Some(upstream) = item.get("upstream").filter(|value| !value.is_null()) {
            service.insert("upstream_id".to_owned(), json!(id));
            let place = join(place, "upstream");
            match upstream {
                Value::Object(upstream) => {
                    let mut value = upstream_of(upstream);
                    value.insert("name".to_owned(), json!(name));
                    self.add(Kind::Upstream, &id, &place, value);
                }
                _ => self.out.add(&place, "wrong type: expected a mapping"),
            }
        } else if item.get("upstreams").is_some_and(Value::is_array) {
            let text = "needs `upstream` beside them: that is where requests go by default";
            self.out.add(&join(place, "upstreams"), text);
        }
        self.add(Kind::Service, &id, place, service);
        let parent = (&*name, &*id);
        self.each(item, "upstreams", place, |made, item, place| {
            made.further_upstream(item, place, parent);
        });
        self.each(item, "routes", place, |made, item, place| {
            made.route(item, place, parent);
        });
        self.each(item, "stream_routes", place, |made, item, place| {
            made.stream_route(item, place, parent);
        });
    }

    fn further_upstream(&mut self, item: &Members, place: &str, (service, service_id): Around<'_>) {
        let Some((_, id)) = self.named(item, place, service) else {
            return;
        };
        let mut value = upstream_of(item);
        let labels = value.entry("labels").or_insert_with(|| json!({}));
        if let Value::Object(labels) = labels {
            labels.insert(SERVICE_LABEL.to_owned(), json!(service_id));
        }
        self.add(Kind::Upstream, &id, place, value);
    }

    fn route(&mut self, item: &Members, place: &str, (service, service_id): Around<'_>) {
        self.known(item, ROUTE, place);
        let Some((_, id)) = self.named(item, place, service) else {
            return;
        };
        let mut route = taken(
            item,
            &[
                "name",
                "uris",
                "hosts",
                "methods",
                "remote_addrs",
                "vars",
                "filter_func",
                "enable_websocket",
                "plugins",
                "priority",
                "timeout",
            ],
        );
        described(item, &mut route, Managed::Yes);
        defaults::numbers(&mut route, &["priority"]);
        if let Some(Value::Object(timeout)) = route.get_mut("timeout") {
            defaults::timeout(timeout);
        }
        route.insert("service_id".to_owned(), json!(service_id));
        route.insert("status".to_owned(), json!(1));
        self.add(Kind::Route, &id, place, route);
    }

    fn stream_route(&mut self, item: &Members, place: &str, (service, service_id): Around<'_>) {
        self.known(item, STREAM_ROUTE, place);
        let Some((name, id)) = self.named(item, place, service) else {
            return;
        };
        let mut route = taken(
            item,
            &[
                "plugins",
                "remote_addr",
                "server_addr",
                "server_port",
                "sni",
            ],
        );
        described(item, &mut route, Managed::Yes);
        defaults::numbers(&mut route, &["server_port"]);
        if let Some(Value::Object(labels)) = route.get_mut("labels") {
            labels.insert(NAME_LABEL.to_owned(), json!(name));
        }
        route.insert("service_id".to_owned(), json!(service_id));
        self.add(Kind::StreamRoute, &id, place, route);
    }
}

/// An upstream, without its place.
fn upstream_of(item: &Members) -> Members {
    let mut value = item.clone();
    value.shift_remove("id");
    for name in ["description", "labels"] {
        value.shift_remove(name);
    }
    described(item, &mut value, Managed::No);
    defaults::upstream(&mut value);
    value
}
