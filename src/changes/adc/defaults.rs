//! What ADC's linter fills in before it sends. These are defaults that the Admin API has as well, so
//! that nothing behaves differently; they are there because ADC compares what is stored with them.
//!
//! It also reads numbers that are written as text, which is what its `${NAME}` makes of a port.

use serde_json::{Map, Value, json};

type Members = Map<String, Value>;

/// Completes an upstream.
pub(super) fn upstream(map: &mut Members) {
    fill(map, "type", || json!("roundrobin"));
    fill(map, "scheme", || json!("http"));
    fill(map, "pass_host", || json!("pass"));
    numbers(map, &["retries", "retry_timeout"]);
    inside(map, "timeout", timeout);
    inside(map, "keepalive_pool", |pool| {
        numbers(pool, &["size", "idle_timeout", "requests"]);
        fill(pool, "size", || json!(320));
        fill(pool, "idle_timeout", || json!(60));
        fill(pool, "requests", || json!(1000));
    });
    if let Some(Value::Array(nodes)) = map.get_mut("nodes") {
        for node in nodes.iter_mut().filter_map(Value::as_object_mut) {
            numbers(node, &["port", "weight", "priority"]);
            fill(node, "priority", || json!(0));
        }
    }
    inside(map, "checks", checks);
}

/// Numbers of a timeout.
pub(super) fn timeout(map: &mut Members) {
    numbers(map, &["connect", "send", "read"]);
}

/// Completes a certificate.
pub(super) fn ssl(map: &mut Members) {
    fill(map, "type", || json!("server"));
    inside(map, "client", |client| {
        numbers(client, &["depth"]);
        fill(client, "depth", || json!(1));
    });
}

fn checks(checks: &mut Members) {
    inside(checks, "active", |active| {
        numbers(active, &["timeout", "concurrency", "port"]);
        fill(active, "type", || json!("http"));
        fill(active, "timeout", || json!(1));
        fill(active, "concurrency", || json!(10));
        fill(active, "http_path", || json!("/"));
        fill(active, "https_verify_certificate", || json!(true));
        for part in ["healthy", "unhealthy"] {
            inside(active, part, |part| {
                numbers(part, &["interval"]);
                fill(part, "interval", || json!(1));
            });
        }
        results(active);
    });
    inside(checks, "passive", |passive| {
        fill(passive, "type", || json!("http"));
        results(passive);
    });
}

/// What makes a node healthy and what unhealthy.
fn results(check: &mut Members) {
    inside(check, "healthy", |part| {
        numbers(part, &["successes"]);
        fill(part, "http_statuses", || json!([200, 302]));
        fill(part, "successes", || json!(2));
    });
    inside(check, "unhealthy", |part| {
        numbers(part, &["http_failures", "tcp_failures", "timeouts"]);
        fill(part, "http_statuses", || {
            json!([429, 404, 500, 501, 502, 503, 504, 505])
        });
        fill(part, "http_failures", || json!(5));
        fill(part, "tcp_failures", || json!(2));
        fill(part, "timeouts", || json!(3));
    });
}

fn fill(map: &mut Members, name: &str, value: impl FnOnce() -> Value) {
    map.entry(name).or_insert_with(value);
}

fn inside(map: &mut Members, name: &str, with: impl FnOnce(&mut Members)) {
    if let Some(Value::Object(inner)) = map.get_mut(name) {
        with(inner);
    }
}

/// Texts that are numbers become them. What is none stays, for the resource's own check to refuse.
pub(super) fn numbers(map: &mut Members, names: &[&str]) {
    for name in names {
        if let Some(value) = map.get_mut(*name)
            && let Some(number) = value.as_str().and_then(|text| text.trim().parse().ok())
        {
            *value = Value::Number(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_filled_in() {
        let check = |mut given: Value, expected: Value| {
            upstream(given.as_object_mut().unwrap());
            assert_eq!(given, expected);
        };
        check(
            json!({"nodes": [{"host": "a", "port": "8080", "weight": 1}]}),
            json!({"nodes": [{"host": "a", "port": 8080, "weight": 1, "priority": 0}],
                   "type": "roundrobin", "scheme": "http", "pass_host": "pass"}),
        );
        check(
            json!({"type": "chash", "scheme": "https", "pass_host": "node", "retries": "x",
                   "checks": {"active": {"http_path": "/up", "healthy": {"successes": 1}}}}),
            json!({"type": "chash", "scheme": "https", "pass_host": "node", "retries": "x",
                   "checks": {"active": {"type": "http", "timeout": 1, "concurrency": 10, "http_path": "/up",
                       "https_verify_certificate": true,
                       "healthy": {"successes": 1, "http_statuses": [200, 302], "interval": 1}}}}),
        );
    }
}
