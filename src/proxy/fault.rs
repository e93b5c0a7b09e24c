//! Everything that can go wrong with a request, and the one table of answers.

use std::borrow::Cow;

use lockgate_plugin::Reply;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The request head breaks the rules of HTTP, or its path has no normal form.
    BadRequest,
    /// The client took too long to send the request head.
    SlowHead,
    /// The client took too long to send the next piece of its body.
    SlowBody,
    /// The request head is too long.
    HeadTooLarge,
    /// The body is longer than `client_max_body_size`.
    BodyTooLarge,
    /// No route matches.
    NoRoute,
    /// The route's service does not exist.
    NoService,
    /// The route's plugin_config, or the consumer's group, does not exist.
    NoPluginConfig,
    /// The route's upstream does not exist.
    NoUpstream,
    /// Neither the route nor its service has an upstream.
    NoTarget,
    /// The upstream has no nodes, or none with a known address.
    NoNodes,
    /// Every node was tried.
    NodesExhausted,
    /// The connection to the node was refused or reset, or TLS failed.
    Connect,
    /// Connecting took too long.
    ConnectTimeout,
    /// The node took too long to read or to answer.
    UpstreamTimeout,
    /// The node closed the connection before its answer was complete.
    UpstreamClosed,
    /// The node's answer breaks the rules of HTTP.
    BadResponse,
    /// The budget of `retry_timeout` is used up.
    RetryTimeout,
    /// A plugin failed or panicked.
    Plugin,
    /// Something that must not happen did.
    Internal,
    /// The client went away or stopped taking the answer.
    ClientGone,
}

impl FaultKind {
    /// The status for the client. 499 is for the log only: nobody is there to read it.
    pub fn status(self) -> u16 {
        use FaultKind::*;
        match self {
            BadRequest => 400,
            SlowHead | SlowBody => 408,
            HeadTooLarge => 431,
            BodyTooLarge => 413,
            NoRoute | NoService => 404,
            NoPluginConfig | NoTarget | NoNodes => 503,
            NoUpstream | NodesExhausted | Connect | UpstreamClosed | BadResponse | RetryTimeout => {
                502
            }
            ConnectTimeout | UpstreamTimeout => 504,
            Plugin | Internal => 500,
            ClientGone => 499,
        }
    }

    /// A constant text for the access log's reason.
    pub fn reason(self) -> &'static str {
        use FaultKind::*;
        match self {
            BadRequest => "bad request",
            SlowHead => "request head too slow",
            SlowBody => "request body too slow",
            HeadTooLarge => "request head too large",
            BodyTooLarge => "request body too large",
            NoRoute => "no route",
            NoService => "service missing",
            NoPluginConfig => "plugin_config or consumer_group missing",
            NoUpstream => "upstream missing",
            NoTarget => "route without upstream",
            NoNodes => "no upstream nodes",
            NodesExhausted => "all upstream nodes tried",
            Connect => "upstream connection failed",
            ConnectTimeout => "upstream connect timeout",
            UpstreamTimeout => "upstream timeout",
            UpstreamClosed => "upstream closed the connection",
            BadResponse => "bad upstream response",
            RetryTimeout => "retry budget used up",
            Plugin => "plugin failed",
            Internal => "internal error",
            ClientGone => "client closed the connection",
        }
    }

    /// Whether another node may be tried after this, as far as the failure itself is concerned.
    pub fn may_retry(self) -> bool {
        use FaultKind::*;
        matches!(
            self,
            Connect | ConnectTimeout | UpstreamTimeout | UpstreamClosed
        )
    }

    /// The answer for the client.
    pub fn reply(self) -> Reply {
        let reply = match self {
            FaultKind::NoRoute => Reply::error_msg(404, "404 Route Not Found"),
            kind => Reply::status(kind.status()),
        };
        reply.because(self.reason())
    }
}

/// A failure on the request path.
#[derive(Debug, thiserror::Error)]
#[error("{}", kind.reason())]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// Details for the log; clients never see them.
    pub cause: Cow<'static, str>,
}

impl Fault {
    /// A failure with details for the log.
    pub fn new(kind: FaultKind, cause: impl Into<Cow<'static, str>>) -> Fault {
        Fault {
            kind,
            cause: cause.into(),
        }
    }
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Fault {
        Fault {
            kind,
            cause: Cow::Borrowed(""),
        }
    }
}

/// Why the request phases ended early.
pub enum Stop {
    /// A plugin answers.
    Reply(Reply),
    /// Something failed.
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<FaultKind> for Stop {
    fn from(kind: FaultKind) -> Stop {
        Stop::Fault(kind.into())
    }
}

/// The stock page of a status, for answers that bring no body: short, and the same as nginx gives in
/// shape, so that clients that look for it find it. `None` for statuses without a page.
pub fn stock_page(status: u16) -> Option<String> {
    if status < 300 || status == 304 {
        return None;
    }
    let name = reason_phrase(status)?;
    Some(format!(
        "<html>\r\n<head><title>{status} {name}</title></head>\r\n<body>\r\n\
         <center><h1>{status} {name}</h1></center>\r\n<hr><center>openresty</center>\r\n</body>\r\n</html>\r\n"
    ))
}

/// The reason phrases of statuses that have a stock page. Source: nginx's built-in pages.
fn reason_phrase(status: u16) -> Option<&'static str> {
    Some(match status {
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Authorization Required",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Time-out",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Large",
        415 => "Unsupported Media Type",
        416 => "Requested Range Not Satisfiable",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Temporarily Unavailable",
        504 => "Gateway Time-out",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_504_and_refusals_502() {
        assert_eq!(FaultKind::ConnectTimeout.status(), 504);
        assert_eq!(FaultKind::UpstreamTimeout.status(), 504);
        assert_eq!(FaultKind::Connect.status(), 502);
    }

    #[test]
    fn pages_exist_only_where_nginx_has_one() {
        assert!(stock_page(503).is_some_and(|p| p.contains("503 Service Temporarily Unavailable")));
        assert_eq!(stock_page(200), None);
        assert_eq!(stock_page(599), None);
    }
}
