//! Listeners, and conflicts between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lockgate_plugin::Problems;
use serde_json::Value;

use super::read::{Reader, shown};
use super::{Listen, Settings, TlsSettings};

/// `apisix.node_listen`: a port, a list of ports, or a list of `{ip, port}`.
pub(super) fn plain(read: &mut Reader<'_>) -> Vec<Listen> {
    let v6 = read.flag("apisix.enable_ipv6", true);
    let Some(value) = read.value("apisix.node_listen") else { return both(9080, v6) };
    let list = match value {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut out = Vec::new();
    for (i, item) in list.iter().enumerate() {
        let path = if value.is_array() { format!("apisix.node_listen[{i}]") } else { "apisix.node_listen".to_owned() };
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
                listen.extend(one(read, &format!("apisix.ssl.listen[{i}]"), item, v6, 9443));
            }
        }
        Some(other) => read.fail("apisix.ssl.listen", format!("expected a list, found {}", shown(other))),
    }
    let protocols = read.text("apisix.ssl.ssl_protocols").unwrap_or_else(|| "TLSv1.2 TLSv1.3".into());
    let protocols: Vec<String> = protocols.split_whitespace().map(str::to_owned).collect();
    for protocol in &protocols {
        if !["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"].contains(&protocol.as_str()) {
            read.fail("apisix.ssl.ssl_protocols", format!("`{protocol}` is not a version; allowed: TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"));
        }
    }
    TlsSettings {
        listen,
        protocols,
        ciphers: read.text("apisix.ssl.ssl_ciphers"),
        fallback_sni: read.text("apisix.ssl.fallback_sni"),
    }
}

/// `apisix.status`; there is always a status page.
pub(super) fn status(read: &mut Reader<'_>) -> Option<SocketAddr> {
    let ip = address(read, "apisix.status.ip", Ipv4Addr::LOCALHOST.into());
    let port = read.integer("apisix.status.port", 1, 65_535).unwrap_or(7085);
    Some(SocketAddr::new(ip, port as u16))
}

/// An address setting.
pub(super) fn address(read: &mut Reader<'_>, path: &str, default: IpAddr) -> IpAddr {
    let Some(text) = read.text(path) else { return default };
    parse_ip(&text).unwrap_or_else(|| {
        read.fail(path, format!("expected an address, found `{text}`"));
        default
    })
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    text.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// A port on all addresses.
fn both(port: u16, v6: bool) -> Vec<Listen> {
    let v4 = Listen { addr: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), v6only: false };
    let v6 = v6.then(|| Listen { addr: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port), v6only: true });
    std::iter::once(v4).chain(v6).collect()
}

/// A port, or `{ip, port}`.
fn one(read: &mut Reader<'_>, path: &str, item: &Value, v6: bool, default: u16) -> Vec<Listen> {
    let port = |value: &Value| value.as_u64().filter(|n| (1..=65_535).contains(n)).map(|n| n as u16);
    match item {
        Value::Number(_) => match port(item) {
            Some(port) => return both(port, v6),
            None => read.fail(path, format!("expected a port from 1 to 65535, found {item}")),
        },
        Value::Object(map) => {
            if map.contains_key("enable_http2") {
                read.fail(&format!("{path}.enable_http2"), "is no longer a setting of one listener; use apisix.enable_http2");
            }
            if map.get("enable_http3") == Some(&Value::Bool(true)) {
                read.fail(&format!("{path}.enable_http3"), "HTTP/3 is not served by this version");
            }
            let number = map.get("port").map_or(Some(default), port);
            let Some(port) = number else {
                read.fail(&format!("{path}.port"), "expected a port from 1 to 65535");
                return Vec::new();
            };
            match map.get("ip").filter(|ip| !ip.is_null()) {
                None => return both(port, v6),
                Some(ip) => match ip.as_str().and_then(parse_ip) {
                    Some(ip) => return vec![Listen { addr: SocketAddr::new(ip, port), v6only: ip.is_ipv6() }],
                    None => read.fail(&format!("{path}.ip"), format!("expected an address, found {ip}")),
                },
            }
        }
        other => read.fail(path, format!("expected a port or {{ip, port}}, found {}", shown(other))),
    }
    Vec::new()
}

/// Notes listeners that want the same port.
pub(super) fn check_conflicts(settings: &Settings, out: &mut Problems) {
    let mut taken: Vec<(SocketAddr, &str, &str)> = Vec::new();
    let mut claim = |addr: SocketAddr, name: &'static str, path: &'static str| {
        let meets = |other: &SocketAddr| {
            let any = |a: &SocketAddr| a.ip().is_unspecified();
            let same_family = other.is_ipv4() == addr.is_ipv4();
            other.port() == addr.port() && same_family && (any(other) || any(&addr) || other.ip() == addr.ip())
        };
        if let Some((_, with, _)) = taken.iter().find(|(other, ..)| meets(other)) {
            out.add(path, format!("{name} port {} conflicts with {with}", addr.port()));
        }
        taken.push((addr, name, path));
    };
    for listen in &settings.listen {
        claim(listen.addr, "node_listen", "apisix.node_listen");
    }
    for listen in &settings.tls.listen {
        claim(listen.addr, "ssl.listen", "apisix.ssl.listen");
    }
    if let Some(addr) = settings.status {
        claim(addr, "status", "apisix.status.port");
    }
    if settings.prometheus.enable_export_server {
        claim(settings.prometheus.addr, "prometheus", "plugin_attr.prometheus.export_addr.port");
    }
}
