//! `proxy-rewrite`: another path, method, host or headers for the upstream.

use bytes::Bytes;
use lockgate_plugin::{
    BuildCx, Ctx, HeaderKey, Outcome, Pattern, Phases, Plugin, Problem, Problems, Step, Template,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Configuration of `proxy-rewrite`. At least one attribute.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub struct Conf {
    /// The new path; `$variables` are filled in. The query is kept and appended.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^\/.*"))]
    uri: Option<String>,
    /// The new method.
    #[serde(default)]
    #[schemars(extend("enum" = [
        "GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "MKCOL", "COPY", "MOVE", "PROPFIND",
        "LOCK", "UNLOCK", "PATCH", "TRACE", null
    ]))]
    method: Option<String>,
    /// Pairs of a regular expression and a replacement for the path, where `uri` is not given; the
    /// first that matches counts. `$1` stands for its first group.
    #[serde(default)]
    #[schemars(length(min = 2))]
    regex_uri: Option<Vec<String>>,
    /// The new `Host`.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[0-9a-zA-Z-.]+(:\d{1,5})?$"))]
    host: Option<String>,
    /// Headers: `{add, set, remove}`, or a mapping that is set.
    #[serde(default)]
    headers: Option<Map<String, Value>>,
    /// Sends the target exactly as the client did. Unsafe: it may not be the path that was matched.
    #[serde(default)]
    use_real_request_uri_unsafe: bool,
}

/// The built plugin.
pub struct ProxyRewrite {
    uri: Option<Template>,
    regex_uri: Vec<(Pattern, String)>,
    method: Option<Bytes>,
    host: Option<Bytes>,
    headers: Vec<Op>,
    raw: bool,
}

enum Op {
    Add(HeaderKey, Text),
    Set(HeaderKey, Text),
    Remove(HeaderKey),
}

/// A header value: variables, and groups of the `regex_uri` match where the text names any.
struct Text {
    template: Template,
    groups: bool,
}

impl Plugin for ProxyRewrite {
    const NAME: &'static str = "proxy-rewrite";
    const PRIORITY: i32 = 1008;
    const PHASES: Phases = Phases::REWRITE;
    type Conf = Conf;

    fn build(conf: Conf, _: &BuildCx<'_>) -> Result<ProxyRewrite, Problems> {
        let mut out = Problems::default();
        let regex_uri = patterns(conf.regex_uri.unwrap_or_default(), &mut out);
        let headers = headers(conf.headers.unwrap_or_default(), &mut out.at("headers"));
        out.into_result()?;
        Ok(ProxyRewrite {
            uri: conf.uri.as_deref().map(Template::parse),
            regex_uri,
            method: conf.method.map(Bytes::from),
            host: conf.host.map(Bytes::from),
            headers,
            raw: conf.use_real_request_uri_unsafe,
        })
    }

    fn rewrite<'a>(&'a self, cx: &'a mut Ctx<'_>) -> Outcome<'a> {
        let groups = self.rewrite_uri(cx);
        if let Some(method) = &self.method {
            cx.set_method(method.clone());
        }
        if let Some(host) = &self.host {
            cx.set_host(host.clone());
        }
        for op in &self.headers {
            match op {
                Op::Add(key, text) => {
                    let value = text.render(cx, groups.as_deref());
                    cx.append_header(key, value);
                }
                Op::Set(key, text) => {
                    let value = text.render(cx, groups.as_deref());
                    cx.set_header(key, value);
                }
                Op::Remove(key) => cx.remove_header(key),
            }
        }
        Ok(Step::Next)
    }
}

impl ProxyRewrite {
    /// Changes the path; gives the groups of the expression that matched.
    fn rewrite_uri(&self, cx: &mut Ctx<'_>) -> Option<Vec<Option<String>>> {
        if self.raw {
            let raw = Bytes::copy_from_slice(cx.raw_target());
            cx.set_raw_target(raw);
        }
        let mut groups = None;
        let path = match &self.uri {
            Some(uri) => Some(uri.render(&cx.lookup()).into_owned()),
            None => {
                let path = cx.uri();
                self.regex_uri.iter().find_map(|(pattern, replacement)| {
                    groups = Some(pattern.captures(path)?);
                    pattern.replace_once(path, replacement)
                })
            }
        };
        let path = path?;
        // A query written into the new path comes first; the client's follows.
        let (path, own) = match path.split_once('?') {
            Some((path, own)) => (path, Some(own)),
            None => (path.as_str(), None),
        };
        let args = match (own, cx.args()) {
            (Some(own), Some(sent)) if !own.is_empty() => Some(format!("{own}&{sent}")),
            (_, Some(sent)) => Some(sent.to_owned()),
            (own, None) => own.map(str::to_owned),
        };
        cx.set_uri(path, args.as_deref());
        groups
    }
}

impl Text {
    fn parse(text: &str) -> Text {
        let groups = text.as_bytes().windows(2).any(|w| w[0] == b'$' && (w[1].is_ascii_digit() || w[1] == b'{'));
        Text { template: Template::parse(&if groups { escape_groups(text) } else { text.to_owned() }), groups }
    }

    fn render(&self, cx: &Ctx<'_>, groups: Option<&[Option<String>]>) -> Bytes {
        let text = self.template.render(&cx.lookup());
        if !self.groups {
            return Bytes::from(text.into_owned());
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = &*text;
        // Groups were put aside as a control character and a digit; see `escape_groups`.
        while let Some(at) = rest.find(GROUP) {
            out.push_str(&rest[..at]);
            let after = &rest[at + GROUP.len_utf8()..];
            let digit = after.chars().next().and_then(|c| c.to_digit(10)).unwrap_or(0) as usize;
            let group = groups.and_then(|groups| groups.get(digit)?.as_deref());
            out.push_str(group.unwrap_or(""));
            rest = after.get(1..).unwrap_or("");
        }
        out.push_str(rest);
        Bytes::from(out)
    }
}

/// Stands for `$` of a group while variables are filled in. No header value may hold it.
const GROUP: char = '\u{1}';

/// Puts `$1` and `${1}` aside, so that the template does not take them for variables.
fn escape_groups(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (digit, next) = match after.as_bytes() {
            [d, ..] if d.is_ascii_digit() => (Some(*d), &after[1..]),
            [b'{', d, b'}', ..] if d.is_ascii_digit() => (Some(*d), &after[3..]),
            _ => (None, after),
        };
        match digit {
            Some(d) => {
                out.push(GROUP);
                out.push(char::from(d));
            }
            None => out.push('$'),
        }
        rest = next;
    }
    out.push_str(rest);
    out
}

fn patterns(list: Vec<String>, out: &mut Problems) -> Vec<(Pattern, String)> {
    if list.len() % 2 != 0 {
        out.add("regex_uri", "The length of regex_uri should be an even number");
    }
    let mut made = Vec::new();
    for (i, pair) in list.chunks_exact(2).enumerate() {
        match Pattern::new(&pair[0]) {
            Ok(pattern) => made.push((pattern, pair[1].clone())),
            Err(e) => out.add(&format!("regex_uri[{}]", i * 2), format!("invalid regex_uri({}, {}): {e}", pair[0], pair[1])),
        }
    }
    made
}

/// Add, then set, then remove.
fn headers(conf: Map<String, Value>, out: &mut Problems) -> Vec<Op> {
    let mut ops = Vec::new();
    let new_form = ["add", "set", "remove"].iter().any(|name| {
        conf.get(*name).is_some_and(|value| value.is_object() || value.is_array())
    });
    if !new_form {
        for (name, value) in &conf {
            values(name, value, out, |key, text| ops.push(Op::Set(key, text)));
        }
        return ops;
    }
    for (name, value) in conf.get("add").and_then(Value::as_object).into_iter().flatten() {
        values(name, value, &mut out.at("add"), |key, text| ops.push(Op::Add(key, text)));
    }
    for (name, value) in conf.get("set").and_then(Value::as_object).into_iter().flatten() {
        let mut first = true;
        values(name, value, &mut out.at("set"), |key, text| {
            // Of several values the first one replaces what was there.
            ops.push(if first { Op::Set(key, text) } else { Op::Add(key, text) });
            first = false;
        });
    }
    for (i, name) in conf.get("remove").and_then(Value::as_array).into_iter().flatten().enumerate() {
        match name.as_str().and_then(|name| name.parse().ok()) {
            Some(key) => ops.push(Op::Remove(key)),
            None => out.at("remove").add(&format!("[{i}]"), "invalid field character in header"),
        }
    }
    ops
}

/// Each value of a header: a text, a number, or a list of them.
fn values(name: &str, value: &Value, out: &mut Problems, mut put: impl FnMut(HeaderKey, Text)) {
    let Ok(key) = name.parse::<HeaderKey>() else {
        out.push(Problem::new(name, "invalid field character in header"));
        return;
    };
    let list = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    for value in list {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(n) => n.to_string(),
            _ => {
                out.push(Problem::new(name, "wrong type: expected one of string, number"));
                continue;
            }
        };
        if text.contains(['\r', '\n', '\0']) {
            out.push(Problem::new(name, "invalid value character in header"));
            continue;
        }
        put(key.clone(), Text::parse(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::{build_error, run};
    use serde_json::json;

    fn target(conf: Value, sent: &str, expected: &str) {
        let run = run::<ProxyRewrite>(conf.clone()).get(sent).expect_next();
        assert_eq!(run.upstream_target(), expected, "{conf} {sent}");
    }

    #[test]
    fn paths() {
        target(json!({"uri": "/new"}), "/old", "/new");
        target(json!({"uri": "/new"}), "/old?a=1", "/new?a=1");
        target(json!({"uri": "/new?b=2"}), "/old?a=1", "/new?b=2&a=1");
        target(json!({"uri": "/new?b=2"}), "/old", "/new?b=2");
        target(json!({"uri": "/x/$arg_id"}), "/old?id=a%20b", "/x/a%20b?id=a%20b");
        target(json!({"uri": "/t$uri"}), "/o", "/t/o");
        target(json!({"regex_uri": ["^/a/(.*)/(.*)$", "/$2/$1"]}), "/a/x/y?q=1", "/y/x?q=1");
        target(json!({"regex_uri": ["^/a$", "/A", "^/b$", "/B"]}), "/b", "/B");
        target(json!({"regex_uri": ["^/a$", "/A"]}), "/c", "/c");
        target(json!({"uri": "/u", "regex_uri": ["^/a$", "/A"]}), "/a", "/u");
        target(json!({"use_real_request_uri_unsafe": true}), "/a//b/../c?x", "/a//b/../c?x");
    }

    #[test]
    fn method_and_host() {
        let run = run::<ProxyRewrite>(json!({"method": "POST", "host": "b.test:81"})).get("/").expect_next();
        assert_eq!((run.upstream_method().as_str(), run.upstream_host().as_str()), ("POST", "b.test:81"));
    }

    fn headers(conf: Value, expected: &[(&str, &[&str])]) {
        let run = run::<ProxyRewrite>(conf.clone()).header("X-Old", "1").header("X-Gone", "1").get("/a/b?n=5").expect_next();
        for (name, values) in expected {
            assert_eq!(run.upstream_headers(name), *values, "{conf} {name}");
        }
    }

    #[test]
    fn header_changes() {
        headers(json!({"headers": {"X-Old": "2", "X-New": 3}}), &[("x-old", &["2"]), ("x-new", &["3"])]);
        headers(
            json!({"headers": {"add": {"X-Old": "2"}, "set": {"X-New": "$arg_n"}, "remove": ["X-Gone"]}}),
            &[("x-old", &["1", "2"]), ("x-new", &["5"]), ("x-gone", &[])],
        );
        headers(json!({"headers": {"set": {"X-Old": ["a", "b"]}}}), &[("x-old", &["a", "b"])]);
        headers(json!({"headers": {"set": {"X-Empty": "$arg_none"}}}), &[("x-empty", &[""])]);
        headers(
            json!({"regex_uri": ["^/(.)/(.)", "/$2"], "headers": {"set": {"X-G": "${1}-$2-$9-$uri"}}}),
            &[("x-g", &["a-b--/b"])],
        );
    }

    #[test]
    fn configurations_that_are_refused() {
        let check = |conf: Value, expected: &str| {
            let text = build_error::<ProxyRewrite>(conf);
            assert!(text.contains(expected), "{text}");
        };
        check(json!({}), "at least 1 properties");
        check(json!({"uri": "x"}), "failed to match pattern");
        check(json!({"regex_uri": ["a"]}), "at least 2 items");
        check(json!({"regex_uri": ["a", "b", "c"]}), "should be an even number");
        check(json!({"regex_uri": ["(", "b"]}), "invalid regex_uri((, b)");
        check(json!({"headers": {"a b": "1"}}), "invalid field character in header");
        check(json!({"headers": {"X-A": "1\r\n2"}}), "invalid value character in header");
        check(json!({"method": "get"}), "enum values");
        check(json!({"host": "a/b"}), "failed to match pattern");
    }
}
