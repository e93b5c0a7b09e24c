//! The nodes of an upstream, in both forms they may be written in.

use indexmap::IndexMap;
use lockgate_plugin::Problems;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use std::borrow::Cow;

use super::shared::HOST;
use crate::upstream::NodeSpec;

/// Nodes in either form.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Nodes {
    /// `{"HOST:PORT": WEIGHT}`, in order.
    Map(IndexMap<String, f64>),
    /// A list.
    List(Vec<Node>),
}

/// A node of the list form.
#[derive(Clone, Debug, Deserialize)]
pub struct Node {
    /// Address or name.
    pub host: String,
    /// The scheme's own when left out.
    pub port: Option<u16>,
    /// Share of the traffic.
    pub weight: f64,
    /// Higher groups are used first.
    #[serde(default)]
    pub priority: i32,
}

impl JsonSchema for Nodes {
    fn schema_name() -> Cow<'static, str> {
        "Nodes".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["object", "array"],
            "additionalProperties": {"type": "integer", "minimum": 0},
            "items": {
                "type": "object",
                "required": ["host", "weight"],
                "properties": {
                    "host": {"type": "string", "pattern": HOST},
                    "port": {"type": ["integer", "null"], "minimum": 1, "maximum": 65535},
                    "weight": {"type": "integer", "minimum": 0},
                    "priority": {"type": "integer", "format": "int32"},
                    "metadata": {"type": "object"}
                }
            }
        })
    }
}

impl Nodes {
    /// What a schema cannot see in an address.
    pub(super) fn check(&self, out: &mut Problems) {
        match self {
            Nodes::Map(map) => {
                for name in map.keys() {
                    if let Err(text) = split_address(name) {
                        out.add(name, text);
                    }
                }
            }
            Nodes::List(list) => {
                for (at, node) in list.iter().enumerate() {
                    if let Err(text) = whole_host(&node.host) {
                        out.at_index(at).add("host", text);
                    }
                }
            }
        }
    }

    /// The list form, for showing. In a map that has been checked every name is an address.
    pub fn listed(&self) -> serde_json::Value {
        let item = |host: &str, port: Option<u16>, weight: f64, priority: Option<i32>| {
            let mut item = serde_json::Map::new();
            item.insert("host".into(), host.into());
            if let Some(port) = port {
                item.insert("port".into(), port.into());
            }
            item.insert("weight".into(), (weight.max(0.0) as u64).into());
            if let Some(priority) = priority {
                item.insert("priority".into(), priority.into());
            }
            serde_json::Value::Object(item)
        };
        let list = match self {
            Nodes::Map(map) => map
                .iter()
                .filter_map(|(name, weight)| {
                    let (host, port) = split_address(name).ok()?;
                    Some(item(host, port, *weight, None))
                })
                .collect(),
            Nodes::List(list) => list
                .iter()
                .map(|node| item(&node.host, node.port, node.weight, Some(node.priority)))
                .collect(),
        };
        serde_json::Value::Array(list)
    }

    /// One list, with `port` where none is given. Checked before: what has no address is left out.
    pub(super) fn specs(&self, port: u16) -> Vec<NodeSpec> {
        let weight = |weight: f64| weight.clamp(0.0, f64::from(u32::MAX)) as u32;
        match self {
            Nodes::Map(map) => map
                .iter()
                .filter_map(|(name, share)| {
                    let (host, own) = split_address(name).ok()?;
                    Some(NodeSpec {
                        host: host.into(),
                        port: own.unwrap_or(port),
                        weight: weight(*share),
                        priority: 0,
                    })
                })
                .collect(),
            Nodes::List(list) => list
                .iter()
                .filter_map(|node| {
                    Some(NodeSpec {
                        host: whole_host(&node.host).ok()?.into(),
                        port: node.port.unwrap_or(port),
                        weight: weight(node.weight),
                        priority: node.priority,
                    })
                })
                .collect(),
        }
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`, and a bare IPv6 address. The host without brackets.
fn split_address(text: &str) -> Result<(&str, Option<u16>), String> {
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok((text, None));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let host = whole_host(host)?;
    let Some(port) = port else {
        return Ok((host, None));
    };
    match port.parse::<u16>() {
        Ok(number) if number > 0 => Ok((host, Some(number))),
        _ => Err(format!("invalid port {port}")),
    }
}

/// A host without its brackets. Only an IPv6 address has brackets or colons.
fn whole_host(text: &str) -> Result<&str, String> {
    let inner = match text.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .ok_or_else(|| format!("`{text}` has no closing bracket"))?,
        None => text,
    };
    if inner.is_empty() {
        return Err(format!("`{text}` has no host"));
    }
    let is_v6 = inner.parse::<std::net::Ipv6Addr>().is_ok();
    if is_v6 || (inner.len() == text.len() && !inner.contains([':', '[', ']'])) {
        return Ok(inner);
    }
    Err(format!("`{text}` is neither a host name nor an IP address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check = |text: &str, expected: Result<(&str, Option<u16>), &str>| {
            assert_eq!(
                split_address(text),
                expected.map_err(str::to_owned),
                "{text}"
            );
        };
        check("a.test", Ok(("a.test", None)));
        check("a.test:81", Ok(("a.test", Some(81))));
        check("127.0.0.1:1", Ok(("127.0.0.1", Some(1))));
        check("::1", Ok(("::1", None)));
        check("[::1]", Ok(("::1", None)));
        check("[::1]:81", Ok(("::1", Some(81))));
        check("a:0", Err("invalid port 0"));
        check("a:65536", Err("invalid port 65536"));
        check("a:", Err("invalid port "));
        check(":80", Err("`` has no host"));
        check("[::1:80", Err("`[::1` has no closing bracket"));
        check(
            "[a]:80",
            Err("`[a]` is neither a host name nor an IP address"),
        );
        check(
            "a:b:80",
            Err("`a:b` is neither a host name nor an IP address"),
        );
    }
}
