//! What the gateway itself adds to heads: `Host`, forwarded headers, `Server`.

use std::net::IpAddr;
use std::sync::LazyLock;

use bytes::Bytes;
use ipnet::IpNet;
use lockgate_plugin::{HeaderKey, ReqView, Work};
use smallvec::SmallVec;

use super::core::Core;
use super::fields::Name;
use super::pipeline::Exchange;
use crate::upstream::{PassHost, UpstreamSpec};

/// Header names the gateway itself deals with.
pub struct Names {
    /// `X-Real-IP`
    pub real_ip: HeaderKey,
    /// `X-Forwarded-For`
    pub forwarded_for: HeaderKey,
    /// `X-Forwarded-Proto`
    pub forwarded_proto: HeaderKey,
    /// `X-Forwarded-Host`
    pub forwarded_host: HeaderKey,
    /// `X-Forwarded-Port`
    pub forwarded_port: HeaderKey,
    /// `Forwarded`
    pub forwarded: HeaderKey,
    /// `Server`
    pub server: HeaderKey,
    /// `X-APISIX-Upstream-Status`
    pub upstream_status: HeaderKey,
    /// `Content-Type`
    pub content_type: HeaderKey,
}

/// The names, parsed once.
pub fn names() -> &'static Names {
    static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
        real_ip: HeaderKey::constant("X-Real-IP"),
        forwarded_for: HeaderKey::constant("X-Forwarded-For"),
        forwarded_proto: HeaderKey::constant("X-Forwarded-Proto"),
        forwarded_host: HeaderKey::constant("X-Forwarded-Host"),
        forwarded_port: HeaderKey::constant("X-Forwarded-Port"),
        forwarded: HeaderKey::constant("Forwarded"),
        server: HeaderKey::constant("Server"),
        upstream_status: HeaderKey::constant("X-APISIX-Upstream-Status"),
        content_type: HeaderKey::constant("Content-Type"),
    });
    &NAMES
}

/// How the client's address and forwarded headers are believed. Source: nginx's real-IP module
/// and APISIX's `trusted_addresses`.
#[derive(Clone)]
pub struct AddressRules {
    /// The header that names the client, from peers in `real_ip_from`.
    pub real_ip_header: HeaderKey,
    /// Peers whose header is believed.
    pub real_ip_from: Vec<IpNet>,
    /// Skip trusted addresses in a list from the right.
    pub recursive: bool,
    /// Peers whose `X-Forwarded-Proto`, `-Host`, `-Port` and `Forwarded` are kept; `None` when not
    /// configured: then nobody's are, but `X-Forwarded-For` is continued for everyone.
    pub trusted: Option<Vec<IpNet>>,
}

impl AddressRules {
    /// Sets the client's address of a request that just arrived.
    pub fn settle(&self, work: &mut Work, req: &dyn ReqView) {
        let peer = work.conn.peer.ip().to_canonical();
        let within = |nets: &[IpNet], ip: &IpAddr| nets.iter().any(|net| net.contains(ip));
        work.distrusts_forwarded_for = self.trusted.is_some();
        work.trusted = self
            .trusted
            .as_ref()
            .is_some_and(|nets| within(nets, &peer));
        if !within(&self.real_ip_from, &peer) {
            return;
        }
        // Fields of the same name are one list (RFC 9110 §5.3).
        let mut list = Text::new();
        req.each(&self.real_ip_header, &mut |value| {
            if !list.is_empty() {
                list.push(b',');
            }
            list.extend_from_slice(value);
        });
        if list.is_empty() {
            return;
        }
        // From the right: the last hop wrote the last entry.
        let mut found = None;
        for part in list.rsplit(|&b| b == b',') {
            let part = std::str::from_utf8(part).unwrap_or_default();
            let Some(addr) = address(part.trim()) else {
                break;
            };
            found = Some(addr);
            if !self.recursive || !within(&self.real_ip_from, &addr.0) {
                break;
            }
        }
        if let Some((ip, port)) = found {
            work.client = std::net::SocketAddr::new(ip, port.unwrap_or(0));
        }
    }
}

/// `1.2.3.4`, `1.2.3.4:80`, `::1`, `[::1]:80`.
fn address(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some((ip, None));
    }
    if let Ok(addr) = text.parse::<std::net::SocketAddr>() {
        return Some((addr.ip(), Some(addr.port())));
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    Some((inner.parse().ok()?, None))
}

/// Decides the `Host` for the upstream, after the plugins and the choice of the node.
pub fn settle_host(exchange: &mut Exchange) {
    let Some(chosen) = &exchange.upstream else {
        return;
    };
    let spec = &chosen.shape.spec;
    let work = &mut exchange.work;
    let picked = work.picked.as_ref();
    let (host, port) = picked.map_or(("", 0), |picked| (&*picked.host, picked.addr.port()));
    let own = work.request.host.clone();
    // With `pass`, a plugin's before the client's.
    work.upstream_host = host_for(spec, host, port).or(own);
}

/// The `Host` that an upstream's settings give to a node; `None` when it is the client's.
pub fn host_for(spec: &UpstreamSpec, host: &str, port: u16) -> Option<Bytes> {
    match &spec.pass_host {
        PassHost::Pass => None,
        PassHost::Rewrite(host) => Some(Bytes::copy_from_slice(host.as_bytes())),
        PassHost::Node => {
            let bracket = host.contains(':');
            Some(Bytes::from(match (bracket, port == spec.scheme.port()) {
                (false, true) => host.to_owned(),
                (true, true) => format!("[{host}]"),
                (false, false) => format!("{host}:{port}"),
                (true, false) => format!("[{host}]:{port}"),
            }))
        }
    }
}

/// The `Host` for the upstream: what [`settle_host`] decided, else the client's own.
pub fn upstream_host<'a>(work: &'a Work, req: &'a dyn ReqView) -> &'a [u8] {
    match &work.upstream_host {
        Some(host) => host,
        None => req.authority(),
    }
}

/// The forwarded headers for the upstream: each is given to `put`, with the value that replaces the
/// client's, or without one when the client's is removed. What a plugin has set is left alone. `ip`
/// is the client's address as text.
pub fn forwarded<R: ReqView>(
    work: &Work,
    req: &R,
    ip: &[u8],
    put: &mut impl FnMut(Name, &HeaderKey, Option<&[u8]>),
) {
    let names = names();
    let edits = &work.request.headers;
    let edited = |key: &HeaderKey| edits.ops().iter().any(|op| op.key() == key);

    if !edited(&names.real_ip) {
        put(Name::RealIp, &names.real_ip, Some(ip));
    }
    let mut list = forwarded_for(work, req);
    let list = if list.is_empty() {
        ip
    } else {
        list.extend_from_slice(ip);
        &list
    };
    put(Name::ForwardedFor, &names.forwarded_for, Some(list));

    let scheme: &[u8] = if work.conn.tls.is_some() {
        b"https"
    } else {
        b"http"
    };
    let kept = |key: &HeaderKey| edited(key) || (work.trusted && req.header(key).is_some());
    if !kept(&names.forwarded_proto) {
        put(Name::ForwardedProto, &names.forwarded_proto, Some(scheme));
    }
    if !kept(&names.forwarded_host) {
        put(
            Name::ForwardedHost,
            &names.forwarded_host,
            Some(req.authority()),
        );
    }
    if !kept(&names.forwarded_port) {
        let port = port_of(req.authority()).unwrap_or_else(|| work.conn.local.port());
        let mut digits = itoa::Buffer::new();
        put(
            Name::ForwardedPort,
            &names.forwarded_port,
            Some(digits.format(port).as_bytes()),
        );
    }
    if !kept(&names.forwarded) && req.header(&names.forwarded).is_some() {
        put(Name::Forwarded, &names.forwarded, None);
    }
}

/// Room for an address and a short list of them.
type Text = SmallVec<[u8; 128]>;

/// A client's address as text, written once for a connection as long as it stays the same.
#[derive(Default)]
pub struct AddressText {
    of: Option<IpAddr>,
    text: SmallVec<[u8; 16]>,
}

impl AddressText {
    /// The text for an address.
    pub fn of(&mut self, ip: IpAddr) -> &[u8] {
        if self.of != Some(ip) {
            self.of = Some(ip);
            self.text.clear();
            match ip.to_canonical() {
                // Most are IPv4, which need not go through the formatter.
                IpAddr::V4(v4) => {
                    for (i, part) in v4.octets().into_iter().enumerate() {
                        if i > 0 {
                            self.text.push(b'.');
                        }
                        let mut digits = itoa::Buffer::new();
                        self.text.extend_from_slice(digits.format(part).as_bytes());
                    }
                }
                IpAddr::V6(v6) => self.text.extend_from_slice(v6.to_string().as_bytes()),
            }
        }
        &self.text
    }
}

/// The list so far, with a comma behind it. A list that a plugin has set is continued too; one from
/// a peer outside `trusted_addresses` is dropped.
fn forwarded_for<R: ReqView>(work: &Work, req: &R) -> Text {
    let key = &names().forwarded_for;
    let distrusted = !work.trusted && work.distrusts_forwarded_for;
    let mut out = Text::new();
    work.request.headers.each(
        key,
        |f| {
            if !distrusted {
                req.each(key, f);
            }
        },
        &mut |value| {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        },
    );
    out
}

/// The port written in an authority.
pub fn port_of(authority: &[u8]) -> Option<u16> {
    let colon = authority.iter().rposition(|&b| b == b':')?;
    let (host, port) = (&authority[..colon], &authority[colon + 1..]);
    // `::1` without brackets is all address.
    if host.contains(&b':') && !host.ends_with(b"]") {
        return None;
    }
    std::str::from_utf8(port).ok()?.parse().ok()
}

/// Response headers of the gateway's own, put before the plugins' changes.
pub fn response_edits(core: &Core, exchange: &mut Exchange) {
    let names = names();
    let work = &mut exchange.work;
    let headers = &mut work.response.headers;
    if !headers.ops().iter().any(|op| *op.key() == names.server) {
        headers.set_clean(&names.server, core.server_token.clone());
    }
    let last = work.attempts.last().map_or(0, |attempt| attempt.status);
    if last != 0 && (core.show_upstream_status || last >= 500) {
        let mut text = String::new();
        for attempt in &work.attempts {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(itoa::Buffer::new().format(attempt.status));
        }
        headers.set(&names.upstream_status, Bytes::from(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_form() {
        let check = |text: &str, expected: Option<(&str, Option<u16>)>| {
            let expected = expected.map(|(ip, port)| (ip.parse().unwrap(), port));
            assert_eq!(address(text), expected, "{text}");
        };
        check("1.2.3.4", Some(("1.2.3.4", None)));
        check("1.2.3.4:80", Some(("1.2.3.4", Some(80))));
        check("::1", Some(("::1", None)));
        check("[::1]", Some(("::1", None)));
        check("[::1]:80", Some(("::1", Some(80))));
        check("unknown", None);
        check("", None);
    }

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["0.0.0.0", "1.20.255.3", "::1", "2001:db8::7"] {
            let mut written = AddressText::default();
            written.of("9.9.9.9".parse().unwrap());
            assert_eq!(written.of(text.parse().unwrap()), text.as_bytes());
        }
    }

    #[test]
    fn ports_of_authorities() {
        let check = |text: &str, expected| assert_eq!(port_of(text.as_bytes()), expected, "{text}");
        check("a.test:81", Some(81));
        check("a.test", None);
        check("[::1]:81", Some(81));
        check("::1", None);
        check("[::1]", None);
        check("a:99999", None);
    }
}
