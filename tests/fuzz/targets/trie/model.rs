//! The rules of selection as plainly as they can be written: all pairs of route and pattern in one
//! list, sorted, and the first that fits wins.

use std::cmp::Reverse;
use std::sync::Arc;

use fancy_regex::RegexBuilder;
use lockgate::router::{Entry, MatchInput, Mode};

/// A match.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// The route.
    pub id: String,
    /// The path pattern that matched.
    pub uri: String,
    /// The host pattern that matched.
    pub host: Option<String>,
    /// Captured parameters.
    pub params: Vec<(String, String)>,
}

/// What the router has to find.
pub fn find(mode: Mode, routes: &[Arc<Entry<()>>], request: &MatchInput<'_>) -> Option<Seen> {
    let mut pairs = Vec::new();
    for route in routes {
        for (uri_at, uri) in route.uris.iter().enumerate() {
            if mode == Mode::HostUri && !route.hosts.is_empty() {
                let hosts = route.hosts.iter().enumerate();
                pairs.extend(hosts.map(|(at, host)| (route, uri_at, uri, at, Some(host))));
            } else {
                pairs.push((route, uri_at, uri, 0, None));
            }
        }
    }
    pairs.sort_by_key(|(route, uri_at, uri, host_at, host)| {
        let star = special(uri, mode);
        (
            host_rank(*host),
            (star.is_some(), Reverse(star)),
            (Reverse(route.priority), Reverse(uri.len()), route.order),
            (Arc::clone(&route.id), *uri_at, *host_at),
        )
    });
    pairs.into_iter().find_map(|(route, _, uri, _, host)| {
        let host = match host {
            Some(host) => Some(Some(host).filter(|host| host_fits(host, request))?),
            None if route.hosts.is_empty() => None,
            None => Some(route.hosts.iter().find(|host| host_fits(host, request))?),
        };
        if !route.methods.is_any() && !route.methods.names().any(|name| name == request.method) {
            return None;
        }
        Some(Seen {
            id: route.id.to_string(),
            uri: uri.to_string(),
            host: host.map(ToString::to_string),
            params: path_fits(uri, request.path, mode)?,
        })
    })
}

/// Where the plain text of a pattern ends, if it ends.
fn special(uri: &str, mode: Mode) -> Option<usize> {
    let colon = uri.find(':').filter(|_| mode == Mode::UriWithParameter);
    [uri.find('*'), colon].into_iter().flatten().min()
}

/// Lower is tried earlier: with a port, exact, the longest wildcard, none.
fn host_rank(host: Option<&Arc<str>>) -> (bool, bool, bool, Reverse<usize>) {
    match host {
        None => (true, true, true, Reverse(0)),
        Some(host) => (
            false,
            !has_port(host),
            host.starts_with('*'),
            Reverse(host.len()),
        ),
    }
}

fn has_port(host: &str) -> bool {
    let after_address = host.rfind(']').map_or(0, |at| at + 1);
    host[after_address..].contains(':')
}

fn host_fits(pattern: &str, request: &MatchInput<'_>) -> bool {
    let host = if has_port(pattern) {
        request.http_host.to_ascii_lowercase()
    } else {
        request.host.as_bytes().to_vec()
    };
    match pattern.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix.as_bytes()),
        None => host == pattern.as_bytes(),
    }
}

fn path_fits(uri: &str, path: &str, mode: Mode) -> Option<Vec<(String, String)>> {
    let Some(at) = special(uri, mode) else {
        return (uri == path).then(Vec::new);
    };
    if !path.starts_with(&uri[..at]) {
        return None;
    }
    if &uri[at..] == "*" {
        return Some(Vec::new());
    }
    // First with regular expressions; if they are none, as plain text.
    match_whole(uri, at, path, true)
        .or_else(|_| match_whole(uri, at, path, false))
        .ok()?
}

struct NotAnExpression;

fn match_whole(
    uri: &str,
    prefix: usize,
    path: &str,
    expressions: bool,
) -> Result<Option<Vec<(String, String)>>, NotAnExpression> {
    let mut names = Vec::new();
    let mut end = 0;
    let mut segments = Vec::new();
    for segment in uri.split('/') {
        end += segment.len();
        let behind = end > prefix;
        end += 1;
        // The names of groups are the router's too: a pattern that uses one itself is text.
        segments.push(match segment.chars().next() {
            Some(':') if behind => {
                names.push(segment[1..].to_owned());
                format!("(?<p{}>[^/]+)", names.len() - 1)
            }
            Some('*') => {
                let name = if segment == "*" {
                    ":ext"
                } else {
                    &segment[1..]
                };
                names.push(name.to_owned());
                format!("(?<p{}>(?s:.*))", names.len() - 1)
            }
            _ if expressions && behind && segment.contains(|c| "*+?()[]{}|^$\\".contains(c)) => {
                segment.to_owned()
            }
            _ => fancy_regex::escape(segment).into_owned(),
        });
    }
    // The limits are the router's, as a pattern beyond them is text, and a match beyond them none.
    let regex = RegexBuilder::new(&format!(r"\A{}\z", segments.join("/")))
        .backtrack_limit(100_000)
        .delegate_size_limit(1 << 20)
        .build()
        .map_err(|_| NotAnExpression)?;
    // The whole path, or it is no match: an alternative in a segment may have left the anchors out.
    let found = regex.captures(path).ok().flatten();
    let Some(found) = found.filter(|found| found.get(0).is_some_and(|m| m.as_str() == path)) else {
        return Ok(None);
    };
    let each = names.into_iter().zip(0..);
    let params = each.filter_map(|(name, at)| {
        let value = found.name(&format!("p{at}"))?;
        (!name.is_empty()).then(|| (name, value.as_str().to_owned()))
    });
    Ok(Some(params.collect()))
}
