//! A request to the Admin API, taken apart.

use std::net::IpAddr;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::access::Role;
use crate::changes::history::{self, Author};
use crate::document::read_yaml;
use crate::endpoint::Answer;

/// The longest body. Source: APISIX.
pub(super) const MAX_BODY: usize = 1_572_864;
/// What everything is below.
pub(super) const PREFIX: &str = "/apisix/admin";
/// The same of what APISIX does not have.
const OWN_PREFIX: &str = "/lockgate/v1";

/// A request.
pub(crate) struct Request {
    pub(super) method: String,
    /// Of whoever asks; a viewer until the key was looked at.
    pub(super) role: Role,
    /// Whether it is below lockgate's own prefix.
    pub(super) own: bool,
    /// The client's address.
    pub(super) client: Option<IpAddr>,
    /// The name of its key.
    pub(super) who: Option<String>,
    /// Held as long as a large body is.
    pub(super) large: Option<OwnedSemaphorePermit>,
    /// The path below the prefix, decoded; a trailing slash leaves an empty last segment.
    pub(super) segments: Vec<String>,
    args: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Whether the body is YAML; JSON else, whatever its type says.
    pub(super) yaml: bool,
    /// Whether YAML is what is wanted.
    pub(super) accepts_yaml: bool,
    /// What the sender calls the configuration.
    pub(super) digest: Option<String>,
    /// Seconds since 1970.
    pub(super) now: u64,
}

impl Request {
    /// `None` when the path is not below the prefix.
    pub(super) fn new(method: &str, path: &str, query: &str, now: u64) -> Option<Request> {
        let path = percent_decode_str(path).decode_utf8_lossy();
        let (rest, own) = match path.strip_prefix(PREFIX) {
            Some(rest) => (rest, false),
            None => (path.strip_prefix(OWN_PREFIX)?, true),
        };
        if !rest.is_empty() && !rest.starts_with('/') {
            return None;
        }
        let mut segments: Vec<String> = Vec::new();
        for segment in rest.split('/').skip(1) {
            // Slashes in a row are one, as in nginx.
            if !(segment.is_empty() && segments.last().is_some_and(String::is_empty)) {
                match segments.last_mut() {
                    Some(last) if last.is_empty() => segment.clone_into(last),
                    _ => segments.push(segment.to_owned()),
                }
            }
        }
        Some(Request {
            method: method.to_owned(),
            role: Role::Viewer,
            own,
            client: None,
            who: None,
            large: None,
            segments,
            args: parse_query(query),
            body: Vec::new(),
            yaml: false,
            accepts_yaml: false,
            digest: None,
            now,
        })
    }

    /// Who asks, and for what.
    pub(super) fn author(&self, action: String, comment: Option<String>) -> Author {
        Author {
            key: self.who.clone(),
            client: self.client.map(|ip| ip.to_canonical().to_string()),
            action,
            comment,
            now: history::now(),
        }
    }

    /// Method and path.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{} {PREFIX}/{}", self.method, self.segments.join("/"));
        if line.len() > LONGEST_LINE {
            let end = (0..=LONGEST_LINE)
                .rev()
                .find(|at| line.is_char_boundary(*at));
            line.truncate(end.unwrap_or(0));
        }
        line
    }

    /// Whether it only reads, whatever its method.
    pub(super) fn only_reads(&self) -> bool {
        self.method == "GET" || (self.own && self.segment(0) == Some("plan"))
    }

    /// Whether its body may be a whole configuration.
    pub(super) fn may_be_large(&self) -> bool {
        self.own && matches!(self.segment(0), Some("plan" | "apply"))
    }

    /// A segment, unless it is missing or empty.
    pub(super) fn segment(&self, at: usize) -> Option<&str> {
        let segment = self.segments.get(at).map(String::as_str);
        segment.filter(|segment| !segment.is_empty())
    }

    /// An argument of the query.
    pub(super) fn arg(&self, name: &str) -> Option<&str> {
        let found = self.args.iter().find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    /// All arguments of the query, in order.
    pub(super) fn args(&self) -> &[(String, String)] {
        &self.args
    }

    /// The body as JSON; `None` when there is none.
    pub(super) fn json(&self) -> Result<Option<Value>, Answer> {
        if self.body.is_empty() {
            return Ok(None);
        }
        let strict = serde_json::from_slice(&self.body);
        let read = strict.or_else(|error| match escaped(&self.body) {
            Some(body) => serde_json::from_slice(&body),
            None => Err(error),
        });
        read.map(Some).map_err(|e| {
            let body = json!({
                "error_msg": format!("invalid request body: {e}"),
                "req_body": String::from_utf8_lossy(&self.body),
            });
            Answer::json(400, body.to_string())
        })
    }

    /// The body as JSON, or as YAML if that is its type.
    pub(super) fn document(&self) -> Result<Option<Value>, Answer> {
        if !self.yaml || self.body.is_empty() {
            return self.json();
        }
        read_yaml(&self.body, "").map_or_else(
            |problems| Err(Answer::bad(format!("invalid request body: {problems}"))),
            |document| Ok(Some(document.value().clone())),
        )
    }

    /// How long what is written stays.
    pub(super) fn ttl(&self) -> Result<Option<std::time::Duration>, Answer> {
        let Some(text) = self.arg("ttl") else {
            return Ok(None);
        };
        let seconds = text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        match seconds {
            Some(seconds) => Ok(Some(std::time::Duration::from_secs_f64(
                seconds.clamp(1.0, LONGEST_TTL),
            ))),
            None => Err(Answer::bad("invalid argument ttl: should be a number")),
        }
    }

    /// Whether references are no hindrance to a deletion: the text has to be exactly this.
    pub(super) fn force(&self) -> bool {
        self.arg("force") == Some("true")
    }
}

/// An argument of a query.
pub(super) fn arg(query: &str, name: &str) -> Option<String> {
    let mut args = parse_query(query).into_iter();
    Some(args.find(|(known, _)| known == name)?.1)
}

/// JSON with its bare line ends and tabs inside texts escaped: APISIX takes them, and people paste
/// whole files into a text. `None` when there are none.
fn escaped(json: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(json.len() + json.len() / 8);
    let (mut inside, mut after_slash, mut changed) = (false, false, false);
    for byte in json {
        match byte {
            0..=0x1f if inside => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                changed = true;
            }
            _ => out.push(*byte),
        }
        inside ^= *byte == b'"' && !after_slash;
        after_slash = inside && *byte == b'\\' && !after_slash;
    }
    changed.then_some(out)
}

/// Bytes of a request's line that the history keeps.
const LONGEST_LINE: usize = 400;

/// Ten years: what is to stay longer has no time to live.
const LONGEST_TTL: f64 = 315_360_000.0;

/// Arguments of a query, decoded, in order.
pub(super) fn parse_query(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        let check = |path: &str, expected: Option<&[&str]>| {
            let got = Request::new("GET", path, "", 0).map(|request| request.segments);
            let expected = expected.map(|list| list.iter().map(|s| (*s).to_owned()).collect());
            assert_eq!(got, expected, "{path}");
        };
        check("/apisix/admin", Some(&[]));
        check("/apisix/admin/", Some(&[""]));
        check("/apisix/admin/routes", Some(&["routes"]));
        check("/apisix/admin/routes/", Some(&["routes", ""]));
        check("/apisix/admin//routes//1", Some(&["routes", "1"]));
        check(
            "/apisix/admin/routes/a%20b%2Fc",
            Some(&["routes", "a b", "c"]),
        );
        check("/apisix/adminx", None);
        check("/lockgate/v1/plan", Some(&["plan"]));
        check("/lockgate/v2/plan", None);
        check("/", None);
    }

    #[test]
    fn bare_line_ends_in_texts_are_taken() {
        let check = |body: &str, expected: Option<Value>| {
            let mut request = Request::new("PUT", PREFIX, "", 0).unwrap();
            request.body = body.as_bytes().to_vec();
            assert_eq!(request.json().ok().flatten(), expected, "{body}");
        };
        check("{\"a\":\n\"b\"}", Some(json!({"a": "b"})));
        check("{\"a\":\"b\nc\td\"}", Some(json!({"a": "b\nc\td"})));
        check("{\"a\\\"\":\"\\\\\"\n}", Some(json!({"a\"": "\\"})));
        check("{\"a\":\"b\n}", None);
        check("{\n\"a\"}", None);
    }

    #[test]
    fn queries_are_taken_apart() {
        let request = Request::new("GET", PREFIX, "a=1&b=x%3D1+2&ttl=1.5&c&a=2", 0).unwrap();
        assert_eq!(request.arg("a"), Some("1"));
        assert_eq!(request.arg("b"), Some("x=1 2"));
        assert_eq!(request.arg("c"), Some(""));
        assert_eq!(request.arg("d"), None);
        assert_eq!(request.ttl().unwrap().unwrap().as_millis(), 1500);
        for bad in ["ttl=x", "ttl=", "ttl=inf", "ttl=NaN"] {
            let request = Request::new("GET", PREFIX, bad, 0).unwrap();
            assert!(request.ttl().is_err(), "{bad}");
        }
    }
}
