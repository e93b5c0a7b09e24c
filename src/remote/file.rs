//! Files with orders, configurations and requests.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use lockgate_plugin::{Problem, Problems};
use serde_json::{Map, Value};

use super::client::Failed;
use crate::changes::{Format, Ids, MOST_REQUESTS};
use crate::document::{Document, Filling, MAX_TEXT, read_filled, read_json};

/// A file that was read, and the order in it.
pub(super) struct Read {
    pub(super) document: Document,
    /// What is sent.
    pub(super) order: Map<String, Value>,
    /// What the order has in front of the paths of the file.
    prefix: &'static str,
}

impl Read {
    /// An order, or a whole configuration. `format` is the layout that it is said to have.
    pub(super) fn order(path: &Path, format: Option<Format>) -> Result<Read, Failed> {
        let mut document = document(path)?;
        let has = |name: &str| document.value().get(name).is_some();
        let (mut order, prefix) = match document.value() {
            Value::Object(map) if has("changes") || has("resources") => (map.clone(), ""),
            Value::Object(_) => {
                let mut order = Map::new();
                order.insert("resources".to_owned(), document.value().clone());
                (order, "resources.")
            }
            _ => {
                return Err(Failed::Text(format!(
                    "{}: holds no mapping",
                    path.display()
                )));
            }
        };
        let said = order.get("format").and_then(Value::as_str);
        let format = format.or_else(|| said.and_then(Format::named));
        if let Some(resources) = order.get_mut("resources") {
            let found = filled(resources, format, Ids::Needed, &mut document);
            let format = found.map_err(|mut problems| {
                for problem in problems.iter_mut().filter(|_| prefix.is_empty()) {
                    problem.path = match &*problem.path {
                        "" => "resources".to_owned(),
                        path => format!("resources.{path}"),
                    };
                }
                in_file(problems, &document)
            })?;
            order.insert("format".to_owned(), format.name().into());
        }
        Ok(Read {
            document,
            order,
            prefix,
        })
    }

    /// What the gateway says against it, with places in the file.
    pub(super) fn located(&self, failed: Failed) -> Failed {
        let Failed::Refused(answer) = &failed else {
            return failed;
        };
        let Some(list) = answer.get("problems").and_then(Value::as_array) else {
            return failed;
        };
        let mut problems = Problems::default();
        for item in list {
            let text = |name: &str| item.get(name).and_then(Value::as_str);
            let path = text("path").unwrap_or_default();
            let path = path.strip_prefix(self.prefix).unwrap_or(path);
            let mut problem = Problem::new(path, text("message").unwrap_or_default());
            problem.hint = text("hint").map(str::to_owned);
            problems.push(problem);
        }
        in_file(problems, &self.document)
    }
}

/// The layout of a whole configuration, which has its variables filled in then. Problems with the
/// document that it is from show none of them.
pub(super) fn filled(
    resources: &mut Value,
    format: Option<Format>,
    ids: Ids,
    document: &mut Document,
) -> Result<Format, Problems> {
    let format = match format {
        Some(format) => format,
        None => Format::of(resources, ids)?,
    };
    let env = |name: &str| std::env::var(name).ok();
    let filling = Filling::new(&env);
    let filled = format.fill(resources, "", &|name| filling.get(name));
    document.hide_more(filling.into_hidden());
    filled.map(|()| format)
}

/// Problems with their places in a file.
pub(super) fn in_file(mut problems: Problems, document: &Document) -> Failed {
    for problem in problems.iter_mut() {
        problem.file = Some(Arc::clone(document.file()));
        problem.place = document.place(&problem.path);
    }
    document.mask(&mut problems);
    Failed::Problems(problems)
}

/// A YAML or JSON file, with the environment filled in as for apisix.yaml.
pub(super) fn document(path: &Path) -> Result<Document, Failed> {
    let name = path.display().to_string();
    let bytes = bytes(path)?;
    let is_json = path.extension().is_some_and(|end| end == "json");
    if is_json {
        return Ok(read_json(&bytes, &name)?);
    }
    let text =
        String::from_utf8(bytes).map_err(|_| Failed::Text(format!("{name}: is no UTF-8 text")))?;
    Ok(read_filled(&text, &|name| std::env::var(name).ok(), &name)?)
}

/// The lines of a file.
pub(super) fn lines(path: &Path) -> Result<Vec<String>, Failed> {
    let text = String::from_utf8(bytes(path)?)
        .map_err(|_| Failed::Text(format!("{}: is no UTF-8 text", path.display())))?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.len() > MOST_REQUESTS {
        let text = format!("{}: has more than {MOST_REQUESTS} lines", path.display());
        return Err(Failed::Text(text));
    }
    Ok(lines)
}

fn bytes(path: &Path) -> Result<Vec<u8>, Failed> {
    let failed = |e: std::io::Error| Failed::Text(format!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    let most = MAX_TEXT as u64 + 1;
    if path == Path::new("-") {
        std::io::stdin()
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() > MAX_TEXT {
        let text = format!("{}: is longer than {MAX_TEXT} bytes", path.display());
        return Err(Failed::Text(text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A variable that every process of a test has, with a value that no message has by itself.
    const NAME: &str = "CARGO_MANIFEST_DIR";

    fn told(name: &str, text: &str) -> String {
        let file = format!("lockgate-order-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, text).unwrap();
        let read = Read::order(&path, None);
        let _ = std::fs::remove_file(&path);
        let read = read.unwrap_or_else(|_| panic!("{text} is not read"));
        let sent = Value::Object(read.order.clone()).to_string();
        let value = std::env::var(NAME).unwrap();
        assert!(sent.contains(&value), "{sent}");
        let message = format!("found {value}");
        let refused = json!({ "problems": [{ "path": "", "message": message, "hint": message }] });
        match read.located(Failed::Refused(refused)) {
            Failed::Problems(problems) => problems.to_string(),
            _ => panic!("no problems"),
        }
    }

    #[test]
    fn what_came_from_the_environment_is_not_told() {
        let value = std::env::var(NAME).unwrap();
        let own = format!("upstreams:\n  - {{ id: u, desc: \"${{{{{NAME}}}}}\", nodes: {{}} }}\n");
        let adc = format!(
            "services:\n  - {{ name: s, description: \"${{{NAME}}}\", routes: [{{ name: r, uris: [/] }}] }}\n"
        );
        for (name, text) in [("own.yaml", own), ("adc.yaml", adc)] {
            let told = told(name, &text);
            assert!(told.contains(NAME) && !told.contains(&value), "{told}");
        }
    }
}
