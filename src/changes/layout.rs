//! In which layout a whole configuration is written: apisix.yaml's, or that of ADC's file. It is found
//! by its shape; where that does not tell, an order may say it.

use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

use super::adc;
use super::order::{Want, What};
use crate::config::decode::split;
use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;
use crate::store::{Item, Listing};

/// A layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lists of resources by kind, as in apisix.yaml.
    Apisix,
    /// Services with their routes inside, as in adc.yaml.
    Adc,
}

/// Whether each resource of a document has to say its id. A store needs one; in a file the position
/// stands for one that is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// It has to.
    Needed,
    /// It need not.
    Optional,
}

impl Format {
    /// By what an order or an option calls it.
    pub fn named(name: &str) -> Option<Format> {
        [Format::Apisix, Format::Adc]
            .into_iter()
            .find(|format| format.name() == name)
    }

    /// What an order calls it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Apisix => "apisix",
            Format::Adc => "adc",
        }
    }

    /// By the shape of a document.
    ///
    /// # Errors
    /// When it has parts of both.
    pub fn of(document: &Value, ids: Ids) -> Result<Format, Problem> {
        let apisix = own_sign(document);
        match (adc::sign(document), apisix) {
            (Some(adc), Some(apisix)) => {
                let text = format!("{adc}, as in ADC's file, and {apisix}, as in apisix.yaml");
                let hint = "one file has one layout";
                Err(Problem::new("", text).hint(hint))
            }
            (Some(_), None) => Ok(Format::Adc),
            (None, Some(_)) => Ok(Format::Apisix),
            (None, None) if ids == Ids::Needed && adc::has_names_for_ids(document) => {
                Ok(Format::Adc)
            }
            (None, None) => Ok(Format::Apisix),
        }
    }

    /// Puts the environment into a document that was read from a file, where the layout has that done
    /// by whoever sends it.
    ///
    /// # Errors
    /// Every variable that is not set, with its place.
    pub fn fill(
        self,
        document: &mut Value,
        place: &str,
        var: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Problems> {
        match self {
            // That was done before it was read.
            Format::Apisix => Ok(()),
            Format::Adc => adc::fill(document, place, var),
        }
    }

    /// Whether a whole configuration in this layout deletes a stored resource that it does not name.
    pub(super) fn speaks_of(self, item: &Item, listing: &Listing) -> bool {
        match self {
            Format::Apisix => true,
            Format::Adc => adc::looks_after(item, listing),
        }
    }

    /// Problems at the places of the file, where resources are made of it.
    pub(crate) fn told(self, problems: Problems) -> Problems {
        match self {
            Format::Apisix => problems,
            Format::Adc => adc::told(problems),
        }
    }
}

/// Something that only apisix.yaml has: a kind that is never at the top of ADC's file, or that is a
/// list only there.
fn own_sign(document: &Value) -> Option<String> {
    let filled = |name: &&&str| {
        let list = document.get(**name).and_then(Value::as_array);
        list.is_some_and(|list| !list.is_empty())
    };
    const LISTS: [&str; 8] = [
        "routes",
        "upstreams",
        "plugin_configs",
        "protos",
        "secrets",
        "stream_routes",
        "global_rules",
        "plugin_metadata",
    ];
    let list = LISTS.iter().find(filled)?;
    Some(format!("`{list}` is a list"))
}

/// The resources of a whole document, and its layout. `place` is where it stands; `format` is the
/// layout that it is said to have.
///
/// # Errors
/// Mistakes of the layout.
pub fn document(
    document: &Value,
    place: &str,
    ids: Ids,
    format: Option<Format>,
) -> Result<(Format, Vec<Want>), Problems> {
    let format = match format {
        Some(format) => format,
        None => Format::of(document, ids).map_err(|mut problem| {
            place.clone_into(&mut problem.path);
            problem
        })?,
    };
    let wants = match format {
        Format::Apisix => lists(document, place, ids)?,
        Format::Adc => adc::wants(document, place)?,
    };
    Ok((format, wants))
}

/// Those of apisix.yaml's layout.
fn lists(document: &Value, place: &str, ids: Ids) -> Result<Vec<Want>, Problems> {
    let within = |path: &str| match place {
        "" => path.to_owned(),
        _ if path.is_empty() => place.to_owned(),
        _ => format!("{place}.{path}"),
    };
    let mut out = Problems::default();
    let found = match split(document, &mut Problems::default()) {
        Ok(found) => found,
        Err(problems) => {
            for mut problem in problems {
                problem.path = within(&problem.path);
                out.push(problem);
            }
            return Err(out);
        }
    };
    let mut wants = Vec::with_capacity(found.len());
    for (key, slot) in found {
        let place = within(&slot.to_string());
        let value = document.get(slot.list).and_then(|list| list.get(slot.at));
        let Some(value) = value else { continue };
        let name = if key.kind == Kind::Consumer {
            "username"
        } else {
            "id"
        };
        if ids == Ids::Needed && value.get(name).and_then(Id::text).is_none() {
            let text = format!("needs its `{name}`: a store knows resources by it");
            out.add(&place, text);
        } else if !is_storable(&key) {
            out.add(&place, format!("`{}` is no id", key.id));
        }
        wants.push(Want {
            key,
            place,
            what: What::Value(value.clone()),
        });
    }
    out.into_result().map(|()| wants)
}

/// Whether a store's path leads back to the key: ids have no slashes, except where a kind's do.
pub(super) fn is_storable(key: &Key) -> bool {
    Key::from_path(&key.to_string()).as_ref() == Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_shape_tells_the_layout() {
        let check = |document: Value, ids: Ids, expected: Result<Format, &str>| {
            let got = Format::of(&document, ids).map_err(|problem| problem.message);
            assert_eq!(got, expected.map_err(str::to_owned), "{document}");
        };
        let (adc, apisix) = (Ok(Format::Adc), Ok(Format::Apisix));
        check(json!({}), Ids::Needed, apisix);
        check(
            json!({"services": [{"name": "a", "routes": []}]}),
            Ids::Optional,
            adc,
        );
        check(
            json!({"consumers": [{"username": "a", "credentials": []}]}),
            Ids::Optional,
            adc,
        );
        check(
            json!({"ssls": [{"snis": ["a"], "certificates": []}]}),
            Ids::Optional,
            adc,
        );
        check(json!({"global_rules": {"cors": {}}}), Ids::Optional, adc);
        check(json!({"plugin_metadata": {"cors": {}}}), Ids::Optional, adc);
        check(json!({"global_rules": [{"id": 1}]}), Ids::Needed, apisix);
        check(
            json!({"global_rules": {}, "routes": [{"id": 1}]}),
            Ids::Needed,
            apisix,
        );
        check(
            json!({"services": [{"id": 1, "name": "a"}]}),
            Ids::Needed,
            apisix,
        );
        // Without an id it could not be stored; in a file its position would do.
        check(
            json!({"services": [{"name": "a", "upstream": {}}]}),
            Ids::Needed,
            adc,
        );
        check(
            json!({"services": [{"name": "a", "upstream": {}}]}),
            Ids::Optional,
            apisix,
        );
        check(
            json!({"services": [{"name": "a", "routes": []}], "routes": [{"id": 1}]}),
            Ids::Needed,
            Err(
                "`services[0]` has `routes`, as in ADC's file, and `routes` is a list, as in apisix.yaml",
            ),
        );
    }
}
