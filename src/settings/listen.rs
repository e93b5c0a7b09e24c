//! Listeners, and conflicts between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lockgate_plugin::schema::closest;
use lockgate_plugin::{Problem, Problems};
use serde_json::{Map, Value};

use super::read::Reader;
use super::{Listen, Settings, TlsSettings};

const A_PORT: &str = "a port from 1 to 65535";

/// `apisix.node_listen`: a port, a list of ports, or a list of `{ip, port}`.
pub(super) fn plain(read: &mut Reader<'_>) -> Vec<Listen> {
    let v6 = read.flag("apisix.enable_ipv6", true);
    let Some(value) = read.value("apisix.node_listen") else {
        return both(9080, v6);
    };
    let list = match value {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut out = Vec::new();
    for (i, item) in list.iter().enumerate() {
        let path = if value.is_array() {
            format!("apisix.node_listen[{i}]")
        } else {
            "apisix.node_listen".to_owned()
        };
        out.extend(one(read, &path, item, v6, 9080));
    }
    out
}

/// `apisix.ssl`.
pub(super) fn tls(read: &mut Reader<'_>) -> TlsSettings {
    let v6 = read.flag("apisix.enable_ipv6", true);
    let enabled = read.flag("apisix.ssl.enable", true);
    let mut listen = Vec::new();
    match read.value("apisix.ssl.listen") {
        _ if !enabled => {}
        None => listen = both(9443, v6),
        Some(Value::Array(list)) => {
            for (i, item) in list.iter().enumerate() {
                listen.extend(one(
                    read,
                    &format!("apisix.ssl.listen[{i}]"),
                    item,
                    v6,
                    9443,
                ));
            }
        }
        Some(other) => read.wrong("apisix.ssl.listen", "a list", other),
    }
    let protocols = read
        .text("apisix.ssl.ssl_protocols")
        .unwrap_or_else(|| "TLSv1.2 TLSv1.3".into());
    let protocols: Vec<String> = protocols.split_whitespace().map(str::to_owned).collect();
    const VERSIONS: [&str; 4] = ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
    if !protocols
        .iter()
        .all(|protocol| VERSIONS.contains(&protocol.as_str()))
        && let Some(found) = read.value("apisix.ssl.ssl_protocols")
    {
        let expected = format!("some of {}", VERSIONS.join(", "));
        read.wrong("apisix.ssl.ssl_protocols", &expected, found);
    }
    TlsSettings {
        listen,
        protocols,
        ciphers: read.text("apisix.ssl.ssl_ciphers"),
        fallback_sni: read.text("apisix.ssl.fallback_sni"),
    }
}

/// `apisix.status`; there is a status page unless it is `false`.
pub(super) fn status(read: &mut Reader<'_>) -> Option<SocketAddr> {
    if read.value("apisix.status") == Some(&Value::Bool(false)) {
        return None;
    }
    let ip = address(read, "apisix.status.ip", Ipv4Addr::LOCALHOST.into());
    let port = read
        .integer("apisix.status.port", 1, 65_535)
        .unwrap_or(7085);
    Some(SocketAddr::new(ip, u16::try_from(port).unwrap_or(7085)))
}

/// `apisix.control`; there is a Control API unless `apisix.enable_control` is `false`.
pub(super) fn control(read: &mut Reader<'_>) -> Option<SocketAddr> {
    let enabled = read.flag("apisix.enable_control", true);
    let ip = address(read, "apisix.control.ip", Ipv4Addr::LOCALHOST.into());
    let port = read.integer("apisix.control.port", 1, 65_535);
    let port = u16::try_from(port.unwrap_or(9090)).unwrap_or(9090);
    enabled.then(|| SocketAddr::new(ip, port))
}

/// An address setting.
pub(super) fn address(read: &mut Reader<'_>, path: &str, default: IpAddr) -> IpAddr {
    let Some(text) = read.text(path) else {
        return default;
    };
    parse_ip(&text).unwrap_or_else(|| {
        read.wrong(path, "an address", &Value::String(text));
        default
    })
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    text.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// A port on all addresses.
fn both(port: u16, v6: bool) -> Vec<Listen> {
    let v4 = Listen {
        addr: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port),
        v6only: false,
        general: false,
    };
    let v6 = v6.then(|| Listen {
        addr: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port),
        v6only: true,
        general: false,
    });
    std::iter::once(v4).chain(v6).collect()
}

/// A port, or `{ip, port}`.
fn one(read: &mut Reader<'_>, path: &str, item: &Value, v6: bool, default: u16) -> Vec<Listen> {
    let port = |value: &Value| {
        let number = value.as_u64().filter(|n| (1..=65_535).contains(n));
        number.and_then(|n| u16::try_from(n).ok())
    };
    match item {
        Value::Number(_) => match port(item) {
            Some(port) => return both(port, v6),
            None => read.wrong(path, A_PORT, item),
        },
        Value::Object(map) => {
            check_members(read, path, map);
            let engine = map.get("engine").and_then(Value::as_str);
            let lane = |listen: Listen| Listen {
                general: engine == Some("general"),
                ..listen
            };
            let number = map.get("port").map_or(Some(default), port);
            let Some(port) = number else {
                let found = map.get("port").unwrap_or(&Value::Null);
                read.wrong(&format!("{path}.port"), A_PORT, found);
                return Vec::new();
            };
            match map.get("ip").filter(|ip| !ip.is_null()) {
                None => return both(port, v6).into_iter().map(lane).collect(),
                Some(ip) => match ip.as_str().and_then(parse_ip) {
                    Some(ip) => {
                        return vec![lane(Listen {
                            addr: SocketAddr::new(ip, port),
                            v6only: ip.is_ipv6(),
                            general: false,
                        })];
                    }
                    None => read.wrong(&format!("{path}.ip"), "an address", ip),
                },
            }
        }
        other => read.wrong(path, "a port or {ip, port}", other),
    }
    Vec::new()
}

/// What else stands in a listener. A misspelt `port` must not become the default one.
fn check_members(read: &mut Reader<'_>, path: &str, map: &Map<String, Value>) {
    for (name, value) in map {
        let path = format!("{path}.{name}");
        match name.as_str() {
            "ip" | "port" => {}
            "engine" if matches!(value.as_str(), Some("auto" | "general")) => {}
            "engine" => read.wrong(&path, "auto or general", value),
            "enable_http2" => {
                read.fail(
                    &path,
                    "is no setting of one listener; use apisix.enable_http2",
                );
            }
            "enable_http3" => match value {
                Value::Bool(false) | Value::Null => {}
                Value::Bool(true) => read.warn(Problem::new(
                    path,
                    "has no effect: HTTP/3 is not served by this version, clients use HTTP/2",
                )),
                other => read.wrong(&path, "true or false", other),
            },
            _ => {
                let mut problem = Problem::new(path, format!("unknown key `{name}`"));
                problem.hint = closest(name, ["ip", "port", "engine", "enable_http3"].into_iter())
                    .map(|close| format!("did you mean `{close}`?"));
                read.push(problem);
            }
        }
    }
}

/// Notes listeners that want the same port, and that there is none.
pub(super) fn check_conflicts(settings: &Settings, out: &mut Problems) {
    let none = settings.listen.is_empty() && settings.tls.listen.is_empty();
    // A listener that cannot be read has been reported, and is not missing.
    if none && out.is_empty() {
        out.add("apisix.node_listen", "there is nothing to listen on");
    }
    let mut taken: Vec<(SocketAddr, &str)> = Vec::new();
    let mut reported: Vec<(u16, &str, &str)> = Vec::new();
    let mut claim = |addr: SocketAddr, name: &'static str, path: &'static str| {
        if let Some((_, with)) = taken.iter().find(|(other, _)| meet(addr, *other)) {
            // IPv4 and IPv6 meet alike; one line says it.
            let report = (addr.port(), name, *with);
            if !reported.contains(&report) {
                out.add(
                    path,
                    format!("{name} port {} conflicts with {with}", addr.port()),
                );
                reported.push(report);
            }
        }
        taken.push((addr, name));
    };
    for listen in &settings.listen {
        claim(listen.addr, "http listen", "apisix.node_listen");
    }
    for listen in &settings.tls.listen {
        claim(listen.addr, "https listen", "apisix.ssl.listen");
    }
    if let Some(admin) = &settings.admin {
        let path = "deployment.admin.admin_listen.port";
        claim(admin.listen, "admin", path);
    }
    if let Some(cluster) = &settings.lockgate.cluster {
        claim(cluster.listen, "cluster", "lockgate.cluster.listen");
    }
    if let Some(addr) = settings.status {
        claim(addr, "status", "apisix.status.port");
    }
    if let Some(addr) = settings.control {
        claim(addr, "control", "apisix.control.port");
    }
    if settings.prometheus.enable_export_server {
        claim(
            settings.prometheus.addr,
            "prometheus",
            "plugin_attr.prometheus.export_addr.port",
        );
    }
}

/// Whether two listeners cannot be open at once.
fn meet(a: SocketAddr, b: SocketAddr) -> bool {
    let overlap = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.is_ipv4() == b.is_ipv4() && overlap
}
