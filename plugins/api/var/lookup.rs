//! Values of variables.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::names::Known;
use super::times::{put_seconds, put_time_local, seconds, time_iso8601, time_local};
use super::{HeaderField, Kind, Var, VarSource, VarValue};
use crate::body_args;
use crate::header::HeaderKey;
use crate::request::{Attempt, Origin, Work};
use crate::target::{ArgValue, arg_value, host_of};
use crate::view::{ReqView, RespView};

/// Clients leave the padding out now and then.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Names of request headers that are read here.
struct Names {
    authorization: HeaderKey,
    content_length: HeaderKey,
    content_type: HeaderKey,
    cookie: HeaderKey,
    forwarded_for: HeaderKey,
    host: HeaderKey,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    authorization: HeaderKey::constant("authorization"),
    content_length: HeaderKey::constant("content-length"),
    content_type: HeaderKey::constant("content-type"),
    cookie: HeaderKey::constant("cookie"),
    forwarded_for: HeaderKey::constant("x-forwarded-for"),
    host: HeaderKey::constant("host"),
});

/// The variables of one request, with the changes that plugins made so far.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    /// The request head.
    pub req: &'a dyn ReqView,
    /// The response head, once there is one.
    pub resp: Option<&'a dyn RespView>,
    /// Everything else.
    pub work: &'a Work,
}

impl VarSource for Lookup<'_> {
    fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>> {
        self.into_var(var)
    }

    fn put(&self, var: &Var, out: &mut Vec<u8>) -> bool {
        match &var.kind {
            Kind::Known(known) => self.put_known(*known, out).is_some(),
            _ => false,
        }
    }
}

impl<'a> Lookup<'a> {
    /// The value of a variable, living as long as the request.
    pub fn into_var(self, var: &'a Var) -> Option<VarValue<'a>> {
        match &var.kind {
            Kind::Known(known) => self.head(*known),
            Kind::Header(field) => self.header(field),
            Kind::OriginalHeader(key) => VarValue::bytes(self.req.header(key)?),
            Kind::Cookie(name) => self.cookie(name),
            Kind::Arg(name) => {
                let args = self.work.target.args(self.req.target())?;
                match arg_value(args, name)? {
                    ArgValue::Flag => Some(VarValue::True),
                    ArgValue::Text(text) => VarValue::text(text),
                }
            }
            Kind::UriParam(name) => {
                let param = self
                    .work
                    .params
                    .iter()
                    .find(|(known, _)| **known == **name)?;
                VarValue::text(&*param.1)
            }
            Kind::Body(body) => body_args::value(body, self.req, self.work),
            Kind::SentHeader(key) => self.sent_header(key),
            Kind::UpstreamHeader(key) => self.upstream_header(key),
            Kind::Fixed(text) => VarValue::text(*text),
            Kind::Nil | Kind::Unknown => None,
        }
    }

    /// What a limit said, in the form of APISIX.
    fn rate_limiting_info(self) -> Option<VarValue<'a>> {
        let limited = self.work.limited.as_ref()?;
        let key = serde_json::Value::String(limited.by.key(&self));
        let (limit, remaining) = (limited.limit, limited.remaining);
        let reset = limited.reset.as_secs();
        VarValue::shown(format_args!(
            "{{\"rate_limiting_key\":{key},\"rate_limiting_limit\":{limit},\"rate_limiting_remaining\":{remaining},\"rate_limiting_reset\":{reset}}}"
        ))
    }

    fn header(self, field: &HeaderField) -> Option<VarValue<'a>> {
        let value = self.joined(&field.key, field.joint);
        match (&field.spelled, value) {
            (Some(spelled), None) => self.joined(spelled, field.joint),
            (_, value) => value,
        }
    }

    /// All values of a request header, joined; borrowed when there is one.
    fn joined(self, key: &HeaderKey, joint: &str) -> Option<VarValue<'a>> {
        let edits = &self.work.request.headers;
        let first = edits.first(key, self.req.header(key))?;
        let each = |f: &mut dyn FnMut(&[u8])| edits.each(key, |f| self.req.each(key, f), f);
        join(first, joint, each)
    }

    fn sent_header(self, key: &HeaderKey) -> Option<VarValue<'a>> {
        let edits = &self.work.response.headers;
        let first = edits.first(key, self.resp.and_then(|resp| resp.header(key)))?;
        let originals = |f: &mut dyn FnMut(&[u8])| {
            if let Some(resp) = self.resp {
                resp.each(key, f);
            }
        };
        join(first, ", ", |f| edits.each(key, originals, f))
    }

    fn upstream_header(self, key: &HeaderKey) -> Option<VarValue<'a>> {
        let resp = self.resp.filter(|_| self.work.origin == Origin::Upstream)?;
        join(resp.header(key)?, ", ", |f| resp.each(key, f))
    }

    fn cookie(self, name: &str) -> Option<VarValue<'a>> {
        let key = &NAMES.cookie;
        let edits = &self.work.request.headers;
        let first = edits.first(key, self.req.header(key))?;
        if let Some(value) = cookie_in(first, name) {
            return VarValue::bytes(value);
        }
        // HTTP/2 clients may send each cookie in a field of its own.
        let mut found = None;
        edits.each(key, |f| self.req.each(key, f), &mut |value| {
            if found.is_none() {
                found = cookie_in(value, name).map(|v| String::from_utf8_lossy(v).into_owned());
            }
        });
        VarValue::text(found?)
    }

    /// Variables about the request and its connection.
    fn head(self, known: Known) -> Option<VarValue<'a>> {
        let (work, req) = (self.work, self.req);
        let conn = &work.conn;
        let raw = req.target();
        match known {
            Known::Uri => VarValue::text(work.target.uri(raw)),
            Known::Args => VarValue::text(work.target.args(raw)?),
            Known::IsArgs => VarValue::text(if work.target.args(raw).is_some() {
                "?"
            } else {
                ""
            }),
            Known::RequestUri => VarValue::text(work.target.request_uri(raw)),
            Known::RealRequestUri => VarValue::bytes(raw),
            Known::Method => match &work.request.method {
                Some(method) => VarValue::bytes(method),
                None => VarValue::text(req.method()),
            },
            Known::Request => {
                let target = String::from_utf8_lossy(raw);
                VarValue::text([req.method(), " ", &target, " ", protocol(req.version())].concat())
            }
            Known::ServerProtocol => VarValue::text(protocol(req.version())),
            Known::Http2 => VarValue::text(match (req.version(), &conn.tls) {
                (20, Some(_)) => "h2",
                (20, None) => "h2c",
                _ => "",
            }),
            Known::Https => VarValue::text(if conn.tls.is_some() { "on" } else { "" }),
            Known::Scheme => VarValue::text(if conn.tls.is_some() { "https" } else { "http" }),
            Known::Host => match req.authority() {
                [] => None,
                authority => VarValue::text(host_of(authority)),
            },
            Known::HttpHost => match (self.joined(&NAMES.host, ", "), req.authority()) {
                (None, []) => None,
                // HTTP/2 has the pseudo header instead.
                (None, authority) => VarValue::bytes(authority),
                (value, _) => value,
            },
            Known::RemoteAddr => VarValue::shown(work.client.ip().to_canonical()),
            Known::RemotePort => VarValue::shown(work.client.port()),
            Known::RealipRemoteAddr => VarValue::shown(conn.peer.ip().to_canonical()),
            Known::RealipRemotePort => VarValue::shown(conn.peer.port()),
            Known::ProxyAddXForwardedFor => {
                let client = work.client.ip().to_canonical();
                match self.joined(&NAMES.forwarded_for, ", ") {
                    Some(list) => VarValue::shown(format_args!("{}, {client}", list.as_text())),
                    None => VarValue::shown(client),
                }
            }
            Known::ServerAddr => VarValue::shown(conn.local.ip().to_canonical()),
            Known::ServerPort => VarValue::shown(conn.local.port()),
            Known::Connection => VarValue::shown(conn.id),
            Known::ConnectionRequests => VarValue::shown(work.conn_requests),
            Known::ContentType => self.joined(&NAMES.content_type, ", "),
            Known::ContentLength => self.joined(&NAMES.content_length, ", "),
            Known::RemoteUser => self.remote_user(),
            _ => self.facts(known),
        }
    }

    /// Variables about the gateway, the TLS session, the route and the consumer.
    fn facts(self, known: Known) -> Option<VarValue<'a>> {
        let work = self.work;
        let conn = &work.conn;
        let tls = conn.tls.as_deref();
        match known {
            Known::Hostname => VarValue::text(conn.server.hostname.as_str()),
            Known::NginxVersion => VarValue::text(conn.server.server_token.as_str()),
            Known::Pid => VarValue::shown(conn.server.pid),
            Known::RequestId => VarValue::bytes(work.request_id.as_ref()?),
            Known::RouteId => VarValue::text(&*work.route.as_ref()?.id),
            Known::RouteName => VarValue::text(&**work.route.as_ref()?.name.as_ref()?),
            Known::ServiceId => VarValue::text(&**work.route.as_ref()?.service_id.as_ref()?),
            Known::ServiceName => VarValue::text(&**work.route.as_ref()?.service_name.as_ref()?),
            Known::ConsumerName => VarValue::text(&*work.consumer.as_ref()?.consumer.username),
            Known::ConsumerGroupId => {
                VarValue::text(&**work.consumer.as_ref()?.consumer.group_id.as_ref()?)
            }
            Known::SslProtocol => VarValue::text(tls?.version.as_str()),
            Known::SslCipher => VarValue::text(tls?.cipher.as_str()),
            Known::SslServerName => VarValue::text(&**tls?.sni.as_ref()?),
            Known::SslAlpn => {
                let h2 = self.req.version() == 20;
                tls.and(VarValue::text(if h2 { "h2" } else { "http/1.1" }))
            }
            Known::SslClientSerial => VarValue::text(tls?.client_serial.as_deref()?),
            Known::SslClientSubject => VarValue::text(tls?.client_subject.as_deref()?),
            Known::SslClientIssuer => VarValue::text(tls?.client_issuer.as_deref()?),
            Known::SslClientFingerprint => VarValue::text(tls?.client_fingerprint.as_deref()?),
            Known::SslClientVerify => {
                // A certificate that does not verify ends the handshake.
                let shown = tls?.client_serial.is_some();
                VarValue::text(if shown { "SUCCESS" } else { "NONE" })
            }
            _ => self.outcome(known),
        }
    }

    /// Variables about the response, the upstream, and times.
    fn outcome(self, known: Known) -> Option<VarValue<'a>> {
        let work = self.work;
        match known {
            Known::Status => {
                let own = self.resp.map_or(work.status, |resp| resp.status());
                match work.response.status.unwrap_or(own) {
                    0 => None,
                    status => VarValue::shown(status),
                }
            }
            Known::BodyBytesSent => VarValue::shown(work.sent_body),
            Known::BytesSent => VarValue::shown(work.sent_bytes.max(work.sent_body)),
            Known::RequestLength => VarValue::shown(self.request_length()),
            Known::RequestCompletion => {
                VarValue::text(if work.finished.is_some() { "OK" } else { "" })
            }
            Known::RequestTime => VarValue::text(seconds(self.elapsed())),
            Known::Msec => {
                let since = self.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
                VarValue::text(seconds(since))
            }
            Known::TimeLocal => VarValue::text(time_local(self.wall())),
            Known::TimeIso8601 => VarValue::text(time_iso8601(self.wall())),
            Known::Origin => VarValue::text(match work.origin {
                Origin::Gateway => "gateway",
                Origin::Upstream => "upstream",
            }),
            Known::RateLimitDimension => VarValue::text(work.limited.as_ref()?.by.dimension()),
            Known::RateLimitKey => VarValue::text(work.limited.as_ref()?.by.key(&self)),
            Known::RateLimitLimit => VarValue::shown(work.limited.as_ref()?.limit),
            Known::RateLimitRemaining => VarValue::shown(work.limited.as_ref()?.remaining),
            Known::RateLimitReset => VarValue::text(seconds(work.limited.as_ref()?.reset)),
            Known::RateLimitRule => VarValue::text(work.limited.as_ref()?.by.rule()),
            Known::RateLimitingInfo => self.rate_limiting_info(),
            Known::Reason if work.reason.is_empty() => None,
            Known::Reason => VarValue::text(work.reason),
            Known::BalancerIp => VarValue::shown(work.picked.as_ref()?.addr.ip().to_canonical()),
            Known::BalancerPort => VarValue::shown(work.picked.as_ref()?.addr.port()),
            Known::UpstreamUnresolvedHost => VarValue::text(&*work.picked.as_ref()?.host),
            Known::UpstreamScheme => VarValue::text(work.upstream_scheme),
            Known::UpstreamHost => match &work.upstream_host {
                Some(host) => VarValue::bytes(host),
                None => VarValue::bytes(self.req.authority()),
            },
            Known::UpstreamUri => match &work.request.target {
                Some(target) => VarValue::bytes(target),
                None => VarValue::text(""),
            },
            Known::UpstreamAddr => self.attempts(|a| Some(a.addr.to_string())),
            Known::UpstreamStatus => {
                self.attempts(|a| (a.status != 0).then(|| a.status.to_string()))
            }
            Known::UpstreamConnectTime => self.attempts(|a| a.connect.map(seconds)),
            Known::UpstreamHeaderTime => self.attempts(|a| a.header.map(seconds)),
            Known::UpstreamResponseTime => self.attempts(|a| a.response.map(seconds)),
            Known::UpstreamReceived => {
                let answered = work.origin == Origin::Upstream;
                let last = work.attempts.last()?.started;
                self.attempts(|a| {
                    let body = if answered && a.started == last {
                        work.upstream_body()
                    } else {
                        0
                    };
                    Some(body.to_string())
                })
            }
            _ => None,
        }
    }

    /// Variables that lines of the access log have by default. The rest goes the usual way.
    fn put_known(self, known: Known, out: &mut Vec<u8>) -> Option<()> {
        let work = self.work;
        let only = || match &work.attempts[..] {
            [attempt] => Some(attempt),
            _ => None,
        };
        match known {
            Known::RemoteAddr => put_address(work.client.ip().to_canonical(), out),
            Known::Status => {
                let own = self.resp.map_or(work.status, |resp| resp.status());
                let status = work.response.status.unwrap_or(own);
                put_number(Some(status).filter(|status| *status != 0)?.into(), out);
            }
            Known::BodyBytesSent => put_number(work.sent_body, out),
            Known::BytesSent => put_number(work.sent_bytes.max(work.sent_body), out),
            Known::RequestTime => put_seconds(self.elapsed(), out),
            Known::TimeLocal => put_time_local(self.wall(), out),
            Known::UpstreamAddr => {
                let addr = only()?.addr;
                put_socket(addr, out);
            }
            Known::UpstreamStatus => {
                let status = Some(only()?.status).filter(|status| *status != 0)?;
                put_number(status.into(), out);
            }
            Known::UpstreamResponseTime => put_seconds(only()?.response?, out),
            _ => return None,
        }
        Some(())
    }

    /// One entry for each upstream try, `-` where only that one has no value.
    fn attempts(self, text: impl Fn(&Attempt) -> Option<String>) -> Option<VarValue<'a>> {
        let mut out = String::new();
        let mut any = false;
        for (i, attempt) in self.work.attempts.iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            let entry = text(attempt);
            any |= entry.is_some();
            out.push_str(entry.as_deref().unwrap_or("-"));
        }
        if any { VarValue::text(out) } else { None }
    }

    fn elapsed(self) -> Duration {
        let start = self.work.timing.start;
        match self.work.finished {
            Some(end) => end.saturating_duration_since(start),
            None => start.elapsed(),
        }
    }

    /// The wall clock at the end of the request, or now. From the monotonic clock, so that a
    /// stepped wall clock cannot make a request end before it began.
    fn wall(self) -> SystemTime {
        self.work.timing.wall + self.elapsed()
    }

    /// Request line, headers and body, as they would be written in HTTP/1.
    fn request_length(self) -> u64 {
        let line = self.req.method().len() + self.req.target().len() + "  HTTP/1.1\r\n".len();
        let mut fields = 0;
        self.req
            .visit(&mut |name, value| fields += name.len() + value.len() + ": \r\n".len());
        (line + fields + "\r\n".len()) as u64 + self.work.received_body
    }

    /// The user of a Basic `Authorization`, checked or not, as nginx shows it.
    fn remote_user(self) -> Option<VarValue<'a>> {
        let value = self.req.header(&NAMES.authorization)?;
        let (scheme, encoded) = value.split_at_checked("Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let decoded = BASE64.decode(encoded.trim_ascii()).ok()?;
        let end = decoded.iter().position(|&b| b == b':')?;
        VarValue::shown(String::from_utf8_lossy(&decoded[..end]))
    }
}

fn put_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn put_address(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(v4) => {
            for (i, part) in v4.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                put_number(part.into(), out);
            }
        }
        IpAddr::V6(v6) => out.extend_from_slice(v6.to_string().as_bytes()),
    }
}

fn put_socket(addr: SocketAddr, out: &mut Vec<u8>) {
    let v6 = addr.is_ipv6();
    out.extend_from_slice(if v6 { b"[" } else { b"" });
    put_address(addr.ip(), out);
    out.extend_from_slice(if v6 { b"]:" } else { b":" });
    put_number(addr.port().into(), out);
}

/// All values as one text; borrowed when `first` is the only one.
fn join<'a>(
    first: &'a [u8],
    joint: &str,
    each: impl Fn(&mut dyn FnMut(&[u8])),
) -> Option<VarValue<'a>> {
    let mut count = 0;
    each(&mut |_| count += 1);
    if count <= 1 {
        return VarValue::bytes(first);
    }
    let mut joined = String::new();
    let mut begun = false;
    each(&mut |value| {
        if begun {
            joined.push_str(joint);
        }
        begun = true;
        joined.push_str(&String::from_utf8_lossy(value));
    });
    VarValue::text(joined)
}

/// The first value of a cookie in one header field.
fn cookie_in<'v>(field: &'v [u8], name: &str) -> Option<&'v [u8]> {
    field.split(|&b| b == b';').find_map(|pair| {
        let value = pair
            .trim_ascii()
            .strip_prefix(name.as_bytes())?
            .strip_prefix(b"=")?;
        Some(value)
    })
}

fn protocol(version: u8) -> &'static str {
    match version {
        9 => "HTTP/0.9",
        10 => "HTTP/1.0",
        20 => "HTTP/2.0",
        30 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}
