//! Texts and header fields as configurations write them, made ready at build time.
//!
//! A text without variables becomes `Bytes` once; using it costs a reference count. One with
//! variables is rendered for each request.
//!
//! ```text
//! let headers = text::fields(conf.headers, &mut out.at("headers"));
//! for (key, value) in &self.headers { cx.set_resp_header(key, value.render(&cx.lookup())); }
//! ```

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use lockgate_plugin::{HeaderKey, Problem, Problems, Template, Var, VarSource};
use schemars::JsonSchema;
use serde::Deserialize;

/// A header value in a configuration: text or a number.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Scalar {
    /// Text.
    Text(String),
    /// A number, written as it stands in the configuration.
    Number(serde_json::Number),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Text(text) => f.write_str(text),
            Scalar::Number(number) => write!(f, "{number}"),
        }
    }
}

/// A text, with or without variables.
pub(crate) enum Text {
    Constant(Bytes),
    Template(Template),
}

impl Text {
    /// A text in which `$name` and `${name ?? default}` are filled in.
    pub(crate) fn parse(text: &str) -> Text {
        let template = Template::parse(text);
        if template.is_constant() {
            Text::Constant(Bytes::copy_from_slice(text.as_bytes()))
        } else {
            Text::Template(template)
        }
    }

    /// The text for a request.
    pub(crate) fn render(&self, source: &dyn VarSource) -> Bytes {
        match self {
            Text::Constant(text) => text.clone(),
            Text::Template(template) => Bytes::from(template.render(source).into_owned()),
        }
    }

    /// Whether it uses a variable of which `is` holds.
    pub(crate) fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        matches!(self, Text::Template(template) if template.any_var(is))
    }

    /// The text, if it is the same for every request.
    pub(crate) fn constant(&self) -> Option<&Bytes> {
        match self {
            Text::Constant(text) => Some(text),
            Text::Template(_) => None,
        }
    }
}

/// Header fields with their values, in the order of their names.
pub(crate) fn fields(conf: BTreeMap<String, Scalar>, out: &mut Problems) -> Vec<(HeaderKey, Text)> {
    let mut fields = Vec::with_capacity(conf.len());
    for (name, value) in conf {
        if let Some(key) = name_and_value(&name, &value.to_string(), out) {
            fields.push((key, Text::parse(&value.to_string())));
        }
    }
    fields
}

/// The key of a field whose name and value may both stand on the wire; else says what is wrong.
pub(crate) fn name_and_value(name: &str, value: &str, out: &mut Problems) -> Option<HeaderKey> {
    let key = name.parse::<HeaderKey>();
    if let Err(why) = &key {
        out.push(Problem::new(
            name,
            format!("invalid field character in header: `{name}` is {why}"),
        ));
    }
    if let Some(bad) = value
        .bytes()
        .find(|b| *b < b' ' && *b != b'\t' || *b == 0x7f)
    {
        let text = format!("invalid value character in header: the control byte {bad:#04x}");
        out.push(Problem::new(name, text));
        return None;
    }
    key.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::testing::request;
    use serde_json::{Value, json};

    fn check(conf: Value, expected: &[(&str, &str)], problems: &str) {
        let mut out = Problems::default();
        let made = fields(serde_json::from_value(conf.clone()).unwrap(), &mut out);
        let run = request().get("/p?a=1");
        let got: Vec<(String, Bytes)> = made
            .iter()
            .map(|(k, v)| (k.spelled().to_owned(), v.render(&run.lookup())))
            .collect();
        let got: Vec<(&str, &str)> = got
            .iter()
            .map(|(k, v)| (k.as_str(), std::str::from_utf8(v).unwrap()))
            .collect();
        assert_eq!(got, expected, "{conf}");
        assert_eq!(out.to_string(), problems, "{conf}");
    }

    #[test]
    fn header_fields() {
        check(json!({}), &[], "");
        check(
            json!({"X-B": "$uri", "X-A": 5}),
            &[("X-A", "5"), ("X-B", "/p")],
            "",
        );
        check(json!({"X": "${arg_z ?? none}-é"}), &[("X", "none-é")], "");
        let name = "invalid field character in header: `a b` is not a header name: \
                    allowed are letters, digits and !#$%&'*+-.^_`|~";
        check(
            json!({"a b": "1", "Y": "2"}),
            &[("Y", "2")],
            &format!("a b: {name}"),
        );
        let value = "X: invalid value character in header: the control byte 0x0d";
        check(json!({"X": "1\r\nEvil: 1"}), &[], value);
    }

    #[test]
    fn a_text_without_variables_is_made_once() {
        assert_eq!(Text::parse("a \\$uri").constant().unwrap(), "a \\$uri");
        assert!(Text::parse("$uri").constant().is_none());
    }
}
