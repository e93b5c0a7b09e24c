//! Changes of response headers: add, then set, then remove.

use std::collections::BTreeMap;

use lockgate_plugin::{Ctx, HeaderKey, Problems, Var};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::text::{self, Scalar, Text};

/// Changes of headers: `add`, `set` and `remove`, made in this order; or, in the older form, a
/// mapping of names to values that are set.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct HeadersConf {
    /// Lines `Name: value` to add beside what is there, such as a second `Set-Cookie`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    add: Option<Vec<String>>,
    /// Values that replace what is there, by name. An empty text sends the header empty.
    #[serde(default)]
    #[schemars(extend("minProperties" = 1))]
    set: Option<BTreeMap<String, Scalar>>,
    /// Names of headers to remove.
    #[serde(default)]
    #[schemars(length(min = 1))]
    remove: Option<Vec<String>>,
    /// The older form: headers to set, by name.
    #[serde(flatten)]
    older: BTreeMap<String, Scalar>,
}

/// Changes, ready to be made.
#[derive(Default)]
pub(super) struct Edits {
    add: Vec<(HeaderKey, Text)>,
    set: Vec<(HeaderKey, Text)>,
    remove: Vec<HeaderKey>,
}

impl Edits {
    pub(super) fn new(conf: Option<HeadersConf>, out: &mut Problems) -> Edits {
        let mut edits = Edits::default();
        let Some(conf) = conf else {
            return edits;
        };
        if conf.add.is_none() && conf.set.is_none() && conf.remove.is_none() {
            edits.set = text::fields(conf.older, out);
            return edits;
        }
        for name in conf.older.keys() {
            // APISIX drops it silently.
            out.add(
                name,
                "a header beside `add`, `set` and `remove` belongs into `set`",
            );
        }
        for (i, line) in conf.add.into_iter().flatten().enumerate() {
            let mut out = out.at("add");
            let mut out = out.at_index(i);
            match line.split_once(':') {
                Some((name, value)) => {
                    let (name, value) = (name.trim(), value.trim());
                    let key = text::name_and_value(name, value, &mut out);
                    edits.add.extend(key.map(|key| (key, Text::parse(value))));
                }
                None => out.add("", format!("expected `Name: value`, found `{line}`")),
            }
        }
        edits.set = text::fields(conf.set.unwrap_or_default(), &mut out.at("set"));
        for (i, name) in conf.remove.into_iter().flatten().enumerate() {
            let mut out = out.at("remove");
            edits
                .remove
                .extend(text::name_and_value(&name, "", &mut out.at_index(i)));
        }
        edits
    }

    /// Whether some value uses a variable of which `is` holds.
    pub(super) fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        let mut values = self.add.iter().chain(&self.set);
        values.any(|(_, value)| value.any_var(is))
    }

    pub(super) fn apply(&self, cx: &mut Ctx<'_>) {
        for (key, value) in &self.add {
            let value = value.render(&cx.lookup());
            cx.append_resp_header(key, value);
        }
        for (key, value) in &self.set {
            let value = value.render(&cx.lookup());
            cx.set_resp_header(key, value);
        }
        for key in &self.remove {
            cx.remove_resp_header(key);
        }
    }
}
