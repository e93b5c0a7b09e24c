//! The selection rules again, as plainly as they can be written: all pairs of route and pattern
//! in one list, sorted, and the first that fits wins.

use std::cmp::Reverse;

use fancy_regex::Regex;

use super::*;

/// Id, path pattern, host pattern and parameters of a match.
pub(super) type Seen = (String, String, Option<String>, Vec<(String, String)>);

pub(super) fn find(mode: Mode, routes: &[Arc<Entry<()>>], request: &Request) -> Option<Seen> {
    let mut pairs = Vec::new();
    for entry in routes {
        for (uri_at, uri) in entry.uris.iter().enumerate() {
            if mode == Mode::HostUri && !entry.hosts.is_empty() {
                for (host_at, host) in entry.hosts.iter().enumerate() {
                    pairs.push((entry, uri_at, uri, host_at, Some(host)));
                }
            } else {
                pairs.push((entry, uri_at, uri, 0, None));
            }
        }
    }
    pairs.sort_by_key(|(entry, uri_at, uri, host_at, host)| {
        let star = special(uri, mode);
        (
            host_rank(*host),
            (star.is_some(), Reverse(star)),
            (Reverse(entry.priority), Reverse(uri.len()), entry.order),
            (Arc::clone(&entry.id), *uri_at, *host_at),
        )
    });
    pairs.into_iter().find_map(|(entry, _, uri, _, host)| {
        let requested = MethodSet::of(&request.method);
        let method = entry.methods.is_any() || entry.methods.names().any(|m| m == request.method);
        assert!(method == entry.methods.allows(requested));
        let remote = entry.remote_addrs.is_empty()
            || entry
                .remote_addrs
                .iter()
                .any(|net| net.contains(&request.remote));
        let host = match host {
            Some(host) => Some(host).filter(|host| host_fits(host, request)).map(Some),
            None if entry.hosts.is_empty() => Some(None),
            None if mode == Mode::HostUri => None,
            None => entry
                .hosts
                .iter()
                .find(|host| host_fits(host, request))
                .map(Some),
        }?;
        if !method || !remote {
            return None;
        }
        let params = path_fits(uri, &request.path, mode)?;
        Some((
            entry.id.to_string(),
            uri.to_string(),
            host.map(|h| h.to_string()),
            params,
        ))
    })
}

fn special(uri: &str, mode: Mode) -> Option<usize> {
    let colon = if mode == Mode::UriWithParameter {
        uri.find(':')
    } else {
        None
    };
    [uri.find('*'), colon].into_iter().flatten().min()
}

/// Lower is tried earlier: with a port, exact, the longest wildcard, none.
fn host_rank(host: Option<&Arc<str>>) -> (bool, bool, bool, Reverse<usize>) {
    let Some(host) = host else {
        return (true, true, true, Reverse(0));
    };
    (
        false,
        !host.contains(':'),
        host.starts_with('*'),
        Reverse(host.len()),
    )
}

fn host_fits(pattern: &str, request: &Request) -> bool {
    let host = if pattern.contains(':') {
        request.http_host.to_ascii_lowercase()
    } else {
        request.host.clone()
    };
    match pattern.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix),
        None => host == pattern,
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
    let mut names = Vec::new();
    let mut end = 0;
    let segments: Vec<String> = uri
        .split('/')
        .map(|segment| {
            end += segment.len() + 1;
            let behind = end > at + 1;
            match segment.chars().next() {
                Some(':') if behind => {
                    names.push(segment[1..].to_owned());
                    "([^/]+)".to_owned()
                }
                Some('*') => {
                    let name = if segment == "*" {
                        ":ext"
                    } else {
                        &segment[1..]
                    };
                    names.push(name.to_owned());
                    "((?s:.*))".to_owned()
                }
                // As it is: an expression. The generator makes no other special characters.
                _ => segment.to_owned(),
            }
        })
        .collect();
    let found = Regex::new(&format!(r"\A{}\z", segments.join("/"))).unwrap();
    let found = found.captures(path).unwrap()?;
    let values = (1..=names.len()).map(|at| found.get(at).unwrap().as_str().to_owned());
    Some(
        names
            .into_iter()
            .zip(values)
            .filter(|(name, _)| !name.is_empty())
            .collect(),
    )
}
