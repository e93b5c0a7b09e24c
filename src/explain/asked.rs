//! The request that is asked about.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::NotExplained;

/// The longest body of a question, and the longest body in one.
pub const MAX_QUESTION: usize = 64 * 1024;

/// A request, described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Such as `GET`.
    #[serde(default = "get")]
    pub method: String,
    /// `http://host:port/path?query`, or the path alone.
    pub url: String,
    /// Headers as they are sent.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The address that the connection comes from, with or without a port.
    #[serde(default)]
    pub from: Option<String>,
    /// The name that the client asks for in its TLS handshake.
    #[serde(default)]
    pub sni: Option<String>,
    /// The consumer whose plugins are merged.
    #[serde(default)]
    pub consumer: Option<String>,
    /// The body.
    #[serde(default)]
    pub body: Option<String>,
}

fn get() -> String {
    "GET".to_owned()
}

/// A question, ready to be put to the proxy's own code.
pub(super) struct Question {
    /// The head as a client would send it, with its empty line.
    pub(super) head: Vec<u8>,
    pub(super) peer: SocketAddr,
    /// The port that the URL names.
    pub(super) port: Option<u16>,
    /// Whether it comes over TLS.
    pub(super) tls: bool,
    /// In lower case, without a final dot.
    pub(super) sni: Option<String>,
}

impl Asked {
    /// A request without anything unusual.
    pub fn new(method: &str, url: &str) -> Asked {
        Asked {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            from: None,
            sni: None,
            consumer: None,
            body: None,
        }
    }

    /// As bytes. What a client could not send on one line is refused; anything else is for the
    /// gateway to judge.
    pub(super) fn question(&self) -> Result<Question, NotExplained> {
        let one_line = |what: &'static str, text: &str| match text.find(['\r', '\n', '\0']) {
            Some(_) => Err(NotExplained::Line(what)),
            None => Ok(()),
        };
        one_line("method", &self.method)?;
        one_line("url", &self.url)?;
        let (scheme, authority, target) = split(&self.url)?;
        let mut head = format!("{} {target} HTTP/1.1\r\n", self.method);
        let has = |wanted: &str| {
            let mut names = self.headers.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(wanted))
        };
        if !has("host") {
            let host = authority.or(self.sni.as_deref()).unwrap_or("localhost");
            head.push_str(&format!("Host: {host}\r\n"));
        }
        for (name, value) in &self.headers {
            one_line("header", name)?;
            one_line("header", value)?;
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = self.body.as_ref().filter(|_| !has("content-length")) {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let tls = scheme == Some("https") || self.sni.is_some();
        let named = || authority.map(without_port).filter(|host| is_name(host));
        let sni = self.sni.as_deref().or_else(named).filter(|_| tls);
        Ok(Question {
            head: head.into_bytes(),
            peer: self.peer()?,
            port: authority.and_then(|text| crate::proxy::head::port_of(text.as_bytes())),
            tls,
            sni: sni.map(|name| name.trim_end_matches('.').to_ascii_lowercase()),
        })
    }

    fn peer(&self) -> Result<SocketAddr, NotExplained> {
        let Some(text) = &self.from else {
            return Ok(SocketAddr::from(([127, 0, 0, 1], 0)));
        };
        let alone = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
        let read = text.parse::<SocketAddr>().or_else(|_| alone());
        read.map_err(|_| NotExplained::From(text.clone()))
    }
}

/// Scheme, authority and target.
fn split(url: &str) -> Result<(Option<&str>, Option<&str>, &str), NotExplained> {
    if url.starts_with('/') {
        return Ok((None, None, url));
    }
    let lower = url.to_ascii_lowercase();
    let schemes = ["http", "https"].into_iter();
    let mut fitting = schemes.filter(|scheme| lower.starts_with(&format!("{scheme}://")));
    let scheme = fitting.next().ok_or(NotExplained::Url)?;
    let rest = &url[scheme.len() + "://".len()..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    if authority.is_empty() || (!target.is_empty() && !target.starts_with('/')) {
        return Err(NotExplained::Url);
    }
    let target = if target.is_empty() { "/" } else { target };
    Ok((Some(scheme), Some(authority), target))
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Clients name no addresses in their handshake.
fn is_name(host: &str) -> bool {
    !host.starts_with('[') && host.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(asked: &Asked) -> String {
        String::from_utf8(asked.question().unwrap().head).unwrap()
    }

    #[test]
    fn urls_become_heads() {
        let check = |url: &str, line: &str, host: &str| {
            let expected = format!("GET {line} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(head(&Asked::new("GET", url)), expected, "{url}");
        };
        check("/a?b=c", "/a?b=c", "localhost");
        check("http://a.test", "/", "a.test");
        check("HTTPS://a.test:9443/x/../y", "/x/../y", "a.test:9443");
        check("http://[::1]:80/", "/", "[::1]:80");
        for bad in ["a", "", "ftp://a/", "http://", "http:///x", "http://a?b"] {
            let asked = Asked::new("GET", bad);
            assert!(matches!(asked.question(), Err(NotExplained::Url)), "{bad}");
        }
    }

    #[test]
    fn what_is_given_is_not_added() {
        let asked = Asked {
            headers: vec![("HOST".into(), "b.test".into()), ("X".into(), "1".into())],
            body: Some("a=1".into()),
            ..Asked::new("POST", "http://a.test/")
        };
        let expected = "POST / HTTP/1.1\r\nHOST: b.test\r\nX: 1\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(head(&asked), expected);
    }

    #[test]
    fn no_text_becomes_a_second_line() {
        let smuggled = ("X".to_owned(), "1\r\nHost: evil".to_owned());
        let by_header = Asked {
            headers: vec![smuggled],
            ..Asked::new("GET", "/")
        };
        for asked in [
            by_header,
            Asked::new("GET / HTTP/1.1\r\nX: 1\r\nGET", "/"),
            Asked::new("GET", "/\r\nX: 1"),
        ] {
            assert!(matches!(asked.question(), Err(NotExplained::Line(_))));
        }
    }

    #[test]
    fn the_name_of_the_handshake_is_the_url_s() {
        let check = |url: &str, sni: Option<&str>, tls: bool, expected: Option<&str>| {
            let asked = Asked {
                sni: sni.map(str::to_owned),
                ..Asked::new("GET", url)
            };
            let question = asked.question().unwrap();
            assert_eq!(
                (question.tls, question.sni.as_deref()),
                (tls, expected),
                "{url}"
            );
        };
        check("http://a.test/", None, false, None);
        check("https://A.test:8443/", None, true, Some("a.test"));
        check("https://10.0.0.1/", None, true, None);
        check("https://[::1]:1/", None, true, None);
        check("/", Some("b.test."), true, Some("b.test"));
        check("https://a.test/", Some("b.test"), true, Some("b.test"));
    }

    #[test]
    fn addresses_with_and_without_port() {
        let check = |from: &str, expected: Option<&str>| {
            let asked = Asked {
                from: Some(from.to_owned()),
                ..Asked::new("GET", "/")
            };
            let peer = asked.question().ok().map(|question| question.peer);
            assert_eq!(peer, expected.map(|text| text.parse().unwrap()), "{from}");
        };
        check("10.0.0.1", Some("10.0.0.1:0"));
        check("10.0.0.1:7", Some("10.0.0.1:7"));
        check("::1", Some("[::1]:0"));
        check("localhost", None);
    }
}
