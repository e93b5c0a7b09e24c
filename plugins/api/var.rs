//! Variables of a request: what `$name` in templates, `vars` in routes and log formats mean.
//!
//! Names are parsed once; at run time a variable is an index or a prepared key.
//! Source: the variables of nginx and APISIX. A variable that has no value is nil (`None`).

use std::borrow::Cow;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use chrono::{DateTime, Local};

use crate::body_args::{self, BodyVar};
use crate::header::HeaderKey;
use crate::request::{Attempt, Origin, Work};
use crate::target::{ArgValue, arg_value, host_of};
use crate::view::{ReqView, RespView};

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VarValue<'a> {
    /// Text.
    Str(Cow<'a, str>),
    /// Present without a value, such as `?flag`.
    True,
    /// Several values, for `has`.
    List(Vec<String>),
}

impl<'a> VarValue<'a> {
    /// The value as text; a list joined by `, `.
    pub fn as_text(&self) -> Cow<'_, str> {
        match self {
            VarValue::Str(text) => Cow::Borrowed(text),
            VarValue::True => Cow::Borrowed("true"),
            VarValue::List(list) => Cow::Owned(list.join(", ")),
        }
    }

    /// The value as a number, by the rules of Lua's `tonumber`.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            VarValue::Str(text) => number(text),
            _ => None,
        }
    }

    fn text(text: impl Into<Cow<'a, str>>) -> Option<VarValue<'a>> {
        Some(VarValue::Str(text.into()))
    }

    fn shown(value: impl std::fmt::Display) -> Option<VarValue<'a>> {
        Some(VarValue::Str(Cow::Owned(value.to_string())))
    }
}

/// A number as Lua reads one: decimal or hexadecimal, blanks around it allowed.
pub fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        // Numbers beyond 2^53 lose digits in Lua, too.
        return u64::from_str_radix(hex, 16).ok().map(|n| sign * n as f64);
    }
    let plain = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    if digits.is_empty() || !digits.bytes().all(plain) {
        return None;
    }
    text.parse().ok()
}

/// Gives values to variables.
pub trait VarSource {
    /// The value of a variable, if it has one.
    fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>>;
}

/// A parsed variable name.
#[derive(Clone, Debug)]
pub struct Var {
    name: Box<str>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Header { key: HeaderKey, cookie: bool },
    Cookie(Box<str>),
    Arg(Box<str>),
    UriParam(Box<str>),
    Body(BodyVar),
    SentHeader(HeaderKey),
    Known(Known),
    Unknown,
}

macro_rules! known {
    ($($variant:ident $($name:literal)|+),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Known { $($variant),+ }
        impl Known {
            fn parse(name: &str) -> Option<Known> {
                Some(match name { $($($name)|+ => Known::$variant,)+ _ => return None })
            }
        }
    };
}

known! {
    Args "args" | "query_string",
    BalancerIp "balancer_ip",
    BalancerPort "balancer_port",
    BodyBytesSent "body_bytes_sent",
    BytesSent "bytes_sent",
    Connection "connection",
    ConnectionRequests "connection_requests",
    ConsumerGroupId "consumer_group_id",
    ConsumerName "consumer_name",
    ContentLength "content_length",
    ContentType "content_type",
    Host "host",
    Hostname "hostname",
    Http2 "http2",
    Https "https",
    IsArgs "is_args",
    Method "method" | "request_method",
    Msec "msec",
    NginxVersion "nginx_version",
    Origin "origin",
    Pid "pid",
    Pipe "pipe",
    Reason "reason",
    RealipRemoteAddr "realip_remote_addr",
    RealipRemotePort "realip_remote_port",
    RealRequestUri "real_request_uri",
    RemoteAddr "remote_addr",
    RemotePort "remote_port",
    RemoteUser "remote_user",
    Request "request" | "request_line",
    RequestId "request_id" | "apisix_request_id",
    RequestLength "request_length",
    RequestTime "request_time",
    RequestType "request_type",
    RequestUri "request_uri",
    RouteId "route_id",
    RouteName "route_name",
    Scheme "scheme",
    ServerAddr "server_addr",
    ServerName "server_name",
    ServerPort "server_port",
    ServerProtocol "server_protocol",
    ServiceId "service_id",
    ServiceName "service_name",
    SslCipher "ssl_cipher",
    SslClientSerial "ssl_client_serial",
    SslProtocol "ssl_protocol",
    SslServerName "ssl_server_name",
    Status "status",
    TimeIso8601 "time_iso8601",
    TimeLocal "time_local",
    UpstreamAddr "upstream_addr",
    UpstreamBytesReceived "upstream_bytes_received" | "upstream_response_length",
    UpstreamConnectTime "upstream_connect_time",
    UpstreamHeaderTime "upstream_header_time",
    UpstreamHost "upstream_host",
    UpstreamResponseTime "upstream_response_time" | "apisix_upstream_response_time",
    UpstreamScheme "upstream_scheme",
    UpstreamStatus "upstream_status",
    UpstreamUnresolvedHost "upstream_unresolved_host",
    UpstreamUri "upstream_uri",
    Uri "uri" | "document_uri",
}

impl Var {
    /// Parses a name, without `$`. Unknown names give a variable that is always nil.
    pub fn parse(name: &str) -> Var {
        let header = |text: &str| HeaderKey::from_var(text).ok();
        let kind = if let Some(known) = Known::parse(name) {
            Kind::Known(known)
        } else if let Some(text) = name.strip_prefix("http_") {
            header(&text.to_ascii_lowercase())
                .map_or(Kind::Unknown, |key| Kind::Header { cookie: key.lower() == "cookie", key })
        } else if let Some(text) = name.strip_prefix("cookie_") {
            Kind::Cookie(text.into())
        } else if let Some(text) = name.strip_prefix("arg_") {
            Kind::Arg(text.into())
        } else if let Some(text) = name.strip_prefix("uri_param_") {
            Kind::UriParam(text.into())
        } else if let Some(text) =
            name.strip_prefix("sent_http_").or_else(|| name.strip_prefix("upstream_http_"))
        {
            header(text).map_or(Kind::Unknown, Kind::SentHeader)
        } else if let Some(body) = BodyVar::parse(name) {
            Kind::Body(body)
        } else {
            Kind::Unknown
        };
        Var { name: name.into(), kind }
    }

    /// The name, as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the name means anything.
    pub fn is_known(&self) -> bool {
        !matches!(self.kind, Kind::Unknown)
    }

    /// Whether the value comes from the request body.
    pub fn needs_body(&self) -> bool {
        matches!(self.kind, Kind::Body(_))
    }
}

/// The variables of one request.
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
}

impl<'a> Lookup<'a> {
    /// The value of a variable, living as long as the request.
    pub fn into_var(self, var: &'a Var) -> Option<VarValue<'a>> {
        match &var.kind {
            Kind::Header { key, cookie } => self.header(key, if *cookie { "; " } else { ", " }),
            Kind::Cookie(name) => self.cookie(name),
            Kind::Arg(name) => self.arg(name),
            Kind::UriParam(name) => {
                let param = self.work.params.iter().find(|(known, _)| **known == **name)?;
                VarValue::text(&*param.1)
            }
            Kind::Body(body) => body_args::value(body, self.req, self.work),
            Kind::SentHeader(key) => {
                let original = self.resp.and_then(|resp| resp.header(key));
                let value = self.work.response.headers.first(key, original)?;
                VarValue::text(String::from_utf8_lossy(value))
            }
            Kind::Known(known) => self.known(*known),
            Kind::Unknown => None,
        }
    }

    fn header(self, key: &HeaderKey, joint: &str) -> Option<VarValue<'a>> {
        let edits = &self.work.request.headers;
        let first = edits.first(key, self.req.header(key))?;
        let mut values = 0;
        edits.each(key, |f| self.req.each(key, f), &mut |_| values += 1);
        if values == 1 {
            return VarValue::text(String::from_utf8_lossy(first));
        }
        let mut joined = String::new();
        edits.each(key, |f| self.req.each(key, f), &mut |value| {
            if !joined.is_empty() {
                joined.push_str(joint);
            }
            joined.push_str(&String::from_utf8_lossy(value));
        });
        VarValue::text(joined)
    }

    fn cookie(self, name: &str) -> Option<VarValue<'a>> {
        let key = HeaderKey::constant("cookie");
        let edits = &self.work.request.headers;
        let mut found = None;
        edits.each(&key, |f| self.req.each(&key, f), &mut |value| {
            for pair in String::from_utf8_lossy(value).split(';') {
                if found.is_none()
                    && let Some((n, v)) = pair.trim().split_once('=')
                    && n == name
                {
                    found = Some(v.to_owned());
                }
            }
        });
        VarValue::text(found?)
    }

    fn arg(self, name: &str) -> Option<VarValue<'a>> {
        let args = self.work.target.args(self.req.target())?;
        match arg_value(args, name)? {
            ArgValue::Flag => Some(VarValue::True),
            ArgValue::Text(text) => VarValue::text(text),
        }
    }

    fn known(self, known: Known) -> Option<VarValue<'a>> {
        let work = self.work;
        let raw = self.req.target();
        let conn = &work.conn;
        match known {
            Known::Args => VarValue::text(work.target.args(raw)?),
            Known::IsArgs => VarValue::text(if work.target.args(raw).is_some() { "?" } else { "" }),
            Known::Uri => VarValue::text(work.target.uri(raw)),
            Known::RequestUri => VarValue::text(work.target.request_uri(raw)),
            Known::RealRequestUri => VarValue::text(String::from_utf8_lossy(raw)),
            Known::Method => match &work.request.method {
                Some(method) => VarValue::text(String::from_utf8_lossy(method)),
                None => VarValue::text(self.req.method()),
            },
            Known::Request => {
                let raw = String::from_utf8_lossy(raw);
                let text = format!("{} {raw} {}", self.req.method(), protocol(self.req.version()));
                VarValue::text(text)
            }
            Known::ServerProtocol => VarValue::text(protocol(self.req.version())),
            Known::Http2 => VarValue::text(if self.req.version() == 20 { "h2" } else { "" }),
            Known::Https => VarValue::text(if conn.tls.is_some() { "on" } else { "" }),
            Known::Scheme => VarValue::text(if conn.tls.is_some() { "https" } else { "http" }),
            Known::Host => VarValue::text(host_of(self.req.authority())),
            Known::ServerName => VarValue::text("_"),
            Known::RemoteAddr => VarValue::shown(work.client.ip().to_canonical()),
            Known::RemotePort => VarValue::shown(work.client.port()),
            Known::RealipRemoteAddr => VarValue::shown(conn.peer.ip().to_canonical()),
            Known::RealipRemotePort => VarValue::shown(conn.peer.port()),
            Known::ServerAddr => VarValue::shown(conn.local.ip().to_canonical()),
            Known::ServerPort => VarValue::shown(conn.local.port()),
            Known::Connection => VarValue::shown(conn.id),
            Known::ConnectionRequests => VarValue::shown(work.conn_requests),
            Known::Hostname => VarValue::text(conn.server.hostname.as_str()),
            Known::NginxVersion => VarValue::text(conn.server.server_token.as_str()),
            Known::Pid => VarValue::shown(conn.server.pid),
            Known::Pipe => VarValue::text("."),
            Known::ContentType => self.header(&HeaderKey::constant("content-type"), ", "),
            Known::ContentLength => self.header(&HeaderKey::constant("content-length"), ", "),
            Known::RemoteUser => self.remote_user(),
            Known::RequestType => VarValue::text("traditional_http"),
            Known::RequestId => VarValue::text(String::from_utf8_lossy(work.request_id.as_ref()?)),
            Known::RouteId => VarValue::text(&*work.route.as_ref()?.id),
            Known::RouteName => VarValue::text(&**work.route.as_ref()?.name.as_ref()?),
            Known::ServiceId => VarValue::text(&**work.route.as_ref()?.service_id.as_ref()?),
            Known::ServiceName => VarValue::text(&**work.route.as_ref()?.service_name.as_ref()?),
            Known::ConsumerName => VarValue::text(&*work.consumer.as_ref()?.consumer.username),
            Known::ConsumerGroupId => {
                VarValue::text(&**work.consumer.as_ref()?.consumer.group_id.as_ref()?)
            }
            Known::SslProtocol => VarValue::text(conn.tls.as_ref()?.version.as_str()),
            Known::SslCipher => VarValue::text(conn.tls.as_ref()?.cipher.as_str()),
            Known::SslServerName => VarValue::text(&**conn.tls.as_ref()?.sni.as_ref()?),
            Known::SslClientSerial => {
                VarValue::text(conn.tls.as_ref()?.client_serial.as_deref()?)
            }
            _ => self.outcome(known),
        }
    }

    /// Variables about the response and the upstream.
    fn outcome(self, known: Known) -> Option<VarValue<'a>> {
        let work = self.work;
        match known {
            Known::Status => {
                let own = self.resp.map_or(work.status, |resp| resp.status());
                let status = work.response.status.unwrap_or(own);
                if status == 0 { None } else { VarValue::shown(status) }
            }
            Known::BodyBytesSent => VarValue::shown(work.sent_body),
            Known::BytesSent => VarValue::shown(work.sent_bytes.max(work.sent_body)),
            Known::RequestLength => VarValue::shown(self.request_length()),
            Known::RequestTime => VarValue::text(seconds(self.elapsed())),
            Known::Msec => {
                let since = self.ended_wall().duration_since(UNIX_EPOCH).unwrap_or_default();
                VarValue::text(seconds(since))
            }
            Known::TimeLocal => {
                let time: DateTime<Local> = self.ended_wall().into();
                VarValue::shown(time.format("%d/%b/%Y:%H:%M:%S %z"))
            }
            Known::TimeIso8601 => {
                let time: DateTime<Local> = self.ended_wall().into();
                VarValue::shown(time.format("%Y-%m-%dT%H:%M:%S%:z"))
            }
            Known::Origin => VarValue::text(match work.origin {
                Origin::Gateway => "gateway",
                Origin::Upstream => "upstream",
            }),
            Known::Reason => (!work.reason.is_empty()).then_some(VarValue::Str(work.reason.into())),
            Known::BalancerIp => VarValue::shown(work.picked.as_ref()?.addr.ip()),
            Known::BalancerPort => VarValue::shown(work.picked.as_ref()?.addr.port()),
            Known::UpstreamUnresolvedHost => VarValue::text(&*work.picked.as_ref()?.host),
            Known::UpstreamScheme => VarValue::text(work.upstream_scheme),
            Known::UpstreamHost => match &work.upstream_host {
                Some(host) => VarValue::text(String::from_utf8_lossy(host)),
                None => VarValue::text(String::from_utf8_lossy(self.req.authority())),
            },
            Known::UpstreamUri => match &work.request.target {
                Some(target) => VarValue::text(String::from_utf8_lossy(target)),
                None => VarValue::text(""),
            },
            Known::UpstreamAddr => self.attempts(|a| Some(a.addr.to_string())),
            Known::UpstreamStatus => self.attempts(|a| (a.status != 0).then(|| a.status.to_string())),
            Known::UpstreamConnectTime => self.attempts(|a| a.connect.map(seconds)),
            Known::UpstreamHeaderTime => self.attempts(|a| a.header.map(seconds)),
            Known::UpstreamResponseTime => self.attempts(|a| a.response.map(seconds)),
            Known::UpstreamBytesReceived => VarValue::shown(work.sent_body),
            _ => None,
        }
    }

    /// One entry for each upstream try, `-` where there is no value.
    fn attempts(self, text: impl Fn(&Attempt) -> Option<String>) -> Option<VarValue<'a>> {
        let mut out = String::new();
        for (i, attempt) in self.work.attempts.iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            out.push_str(text(attempt).as_deref().unwrap_or("-"));
        }
        if out.is_empty() { None } else { VarValue::text(out) }
    }

    fn elapsed(self) -> Duration {
        let start = self.work.timing.start;
        self.work.finished.map_or_else(|| start.elapsed(), |end| end.saturating_duration_since(start))
    }

    fn ended_wall(self) -> std::time::SystemTime {
        self.work.timing.wall + self.elapsed()
    }

    /// Request line, headers and body, as they would be written in HTTP/1.
    fn request_length(self) -> u64 {
        let line = self.req.method().len() + self.req.target().len() + " HTTP/1.1\r\n ".len();
        let mut fields = 0;
        self.req.visit(&mut |name, value| fields += name.len() + value.len() + 4);
        (line + fields + 2) as u64 + self.work.received_body
    }

    /// The user of a Basic `Authorization`, checked or not, as nginx shows it.
    fn remote_user(self) -> Option<VarValue<'a>> {
        let value = self.req.header(&HeaderKey::constant("authorization"))?;
        let encoded = std::str::from_utf8(value).ok()?.strip_prefix("Basic ")?;
        let decoded = body_args::base64(encoded.trim())?;
        let text = String::from_utf8_lossy(&decoded).into_owned();
        VarValue::text(text.split_once(':')?.0.to_owned())
    }
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

/// Seconds with three decimals, as nginx writes times.
fn seconds(duration: Duration) -> String {
    let mut out = String::with_capacity(8);
    let _ = write!(out, "{}.{:03}", duration.as_secs(), duration.subsec_millis());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_lua_reads_them() {
        let check = |text: &str, expected: Option<f64>| assert_eq!(number(text), expected, "{text:?}");
        check("5", Some(5.0));
        check(" -1.5e2 ", Some(-150.0));
        check("0x1F", Some(31.0));
        check("", None);
        check("5x", None);
        check("inf", None);
        check("nan", None);
        check("1 2", None);
    }

    #[test]
    fn names() {
        let check = |name: &str, known: bool, body: bool| {
            let var = Var::parse(name);
            assert_eq!((var.is_known(), var.needs_body()), (known, body), "{name}");
        };
        check("uri", true, false);
        check("http_x_forwarded_for", true, false);
        check("arg_any thing", true, false);
        check("post_arg.a.b", true, true);
        check("graphql_name", true, true);
        check("request_body", true, true);
        check("no_such_variable", false, false);
    }

    #[test]
    fn times() {
        assert_eq!(seconds(Duration::from_millis(1_234)), "1.234");
        assert_eq!(seconds(Duration::from_micros(900)), "0.000");
    }
}
