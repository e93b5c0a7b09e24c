//! ADC's own file, as the resources that ADC would make of it.
//!
//! ADC nests: a service has its routes and its upstream inside, a consumer its credentials. What comes
//! out is what ADC 0.28 sends to an Admin API: the same ids (SHA-1 of names), the same label
//! `managed-by`, the defaults that it fills in. So after `adc sync` there is nothing to change, and
//! after an order `adc diff` finds nothing.
//!
//! Three things ADC would lose or be refused for are told or mended: `path_prefix` and
//! `consumer_groups` are refused, a service may have no upstream, and an upstream's `description` and
//! a certificate's `ssl_protocols` are taken over.

mod consumers;
mod convert;
mod defaults;
mod env;
mod services;

use std::borrow::Cow;

use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

use super::order::Want;
use crate::store::{Item, Listing};

/// What an upstream below a service says of it.
const SERVICE_LABEL: &str = "__ADC_UPSTREAM_SERVICE_ID";
/// Where ADC keeps the name of a stream route, which has none.
const NAME_LABEL: &str = "__ADC_NAME";
/// Who made a resource, as ADC says it.
const MANAGED_BY: (&str, &str) = ("managed-by", "adc");

/// The resources of a file in ADC's layout. `place` is where it stands.
///
/// # Errors
/// Every mistake of the layout, with its place. Resources are not looked into here.
pub(super) fn wants(document: &Value, place: &str) -> Result<Vec<Want>, Problems> {
    convert::wants(document, place)
}

/// Puts the environment into the texts of a file: see `env`.
///
/// # Errors
/// Every variable that is not set, with its place.
pub(super) fn fill(
    document: &mut Value,
    place: &str,
    var: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Problems> {
    let mut out = Problems::default();
    env::fill(document, place, var, &mut out);
    out.into_result()
}

/// Something in a document that only ADC writes.
pub(super) fn sign(document: &Value) -> Option<String> {
    let list = |name: &str| document.get(name).and_then(Value::as_array);
    for name in ["global_rules", "plugin_metadata"] {
        let map = document.get(name).and_then(Value::as_object);
        if map.is_some_and(|map| !map.is_empty()) {
            return Some(format!("`{name}` is a mapping"));
        }
    }
    let nested = [
        (
            "services",
            ["routes", "stream_routes", "upstreams"].as_slice(),
        ),
        ("consumers", &["credentials"]),
        ("ssls", &["certificates"]),
        ("consumer_groups", &["consumers"]),
    ];
    for (name, members) in nested {
        for (at, item) in list(name).into_iter().flatten().enumerate() {
            let member = members.iter().find(|member| item.get(**member).is_some());
            if let Some(member) = member {
                return Some(format!("`{name}[{at}]` has `{member}`"));
            }
        }
    }
    None
}

/// Something in a document that a store would need an id for and ADC would not. Weak: in a file the
/// position may stand for the id.
pub(super) fn has_names_for_ids(document: &Value) -> bool {
    let services = document.get("services").and_then(Value::as_array);
    let mut services = services.into_iter().flatten();
    services.any(|item| item.get("id").is_none() && item.get("name").is_some())
}

/// Whether ADC looks after a stored resource, and so deletes it when its file does not name it.
/// Routes and upstreams that belong to no service it does not see, nor kinds that its file has not.
pub(super) fn looks_after(item: &Item, listing: &Listing) -> bool {
    let (folder, id) = item.path.split_once('/').unwrap_or((&item.path, ""));
    let has_service = |id: &str| listing.find(&format!("services/{id}")).is_some();
    let value = || serde_json::from_str::<Value>(&item.text).unwrap_or(Value::Null);
    match folder {
        "services" | "consumers" | "ssls" | "global_rules" | "plugin_metadata" => true,
        "routes" | "stream_routes" => value()["service_id"].as_str().is_some_and(has_service),
        "upstreams" => {
            let of = || value()["labels"][SERVICE_LABEL].as_str().map(str::to_owned);
            has_service(id) || of().is_some_and(|of| has_service(&of))
        }
        _ => false,
    }
}

/// Problems at the places of ADC's file, whose members have other names than those of resources.
pub(super) fn told(mut problems: Problems) -> Problems {
    problems.iter_mut().for_each(|problem: &mut Problem| {
        if let Cow::Owned(path) = told_path(&problem.path) {
            problem.path = path;
        }
    });
    problems
}

/// The path in ADC's file of what is at a path of a resource, behind its place in the file.
fn told_path(path: &str) -> Cow<'_, str> {
    let (start, rest) = match path.strip_prefix("resources.") {
        Some(rest) => ("resources.", rest),
        None => ("", path),
    };
    let owned = |text: String| Cow::Owned(format!("{start}{text}"));
    if let Some(after) = rest.strip_prefix("global_rules.")
        && let Some((name, inner)) = after.split_once(".plugins")
    {
        let inner = inner.strip_prefix('.').unwrap_or(inner);
        let inner = inner.strip_prefix(name).unwrap_or("");
        return owned(format!("global_rules.{name}{inner}"));
    }
    if rest.starts_with("consumers[")
        && let Some((item, inner)) = rest.split_once("].plugins.")
        && item.contains(".credentials[")
    {
        let inner = inner.find(['.', '[']).map_or("", |end| &inner[end..]);
        return owned(format!("{item}].config{inner}"));
    }
    if rest.starts_with("ssls[")
        && let Some((item, inner)) = rest.split_once("].")
        && let Some(inner) = certificate(inner)
    {
        return owned(format!("{item}].{inner}"));
    }
    match rest.strip_suffix(".desc") {
        Some(item) => owned(format!("{item}.description")),
        None => Cow::Borrowed(path),
    }
}

/// Where a part of a certificate is.
fn certificate(member: &str) -> Option<String> {
    let at = |rest: &str| -> Option<usize> { rest.strip_suffix(']')?.parse().ok() };
    Some(match member {
        "cert" => "certificates[0].certificate".to_owned(),
        "key" => "certificates[0].key".to_owned(),
        "certs" | "keys" => "certificates".to_owned(),
        _ => {
            let (name, rest) = member.split_once('[')?;
            let name = match name {
                "certs" => "certificate",
                "keys" => "key",
                _ => return None,
            };
            format!("certificates[{}].{name}", at(rest)? + 1)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_where_the_file_has_them() {
        let check = |path: &str, expected: &str| assert_eq!(told_path(path), expected);
        check(
            "services[0].routes[1].uris[0]",
            "services[0].routes[1].uris[0]",
        );
        check(
            "resources.services[0].desc",
            "resources.services[0].description",
        );
        check(
            "services[0].upstream.desc",
            "services[0].upstream.description",
        );
        check(
            "global_rules.cors.plugins.cors.max_age",
            "global_rules.cors.max_age",
        );
        check("global_rules.cors.plugins.cors", "global_rules.cors");
        check(
            "resources.global_rules.a.plugins",
            "resources.global_rules.a",
        );
        check(
            "plugin_metadata.cors.allow_origins",
            "plugin_metadata.cors.allow_origins",
        );
        check(
            "consumers[1].credentials[0].plugins.key-auth.key",
            "consumers[1].credentials[0].config.key",
        );
        check(
            "consumers[1].plugins.key-auth.key",
            "consumers[1].plugins.key-auth.key",
        );
        check("ssls[2].cert", "ssls[2].certificates[0].certificate");
        check("ssls[2].keys[0]", "ssls[2].certificates[1].key");
        check("ssls[2].certs", "ssls[2].certificates");
        check("ssls[2].client.ca", "ssls[2].client.ca");
    }
}
