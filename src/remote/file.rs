//! Files with orders, configurations and requests.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use lockgate_plugin::{Problem, Problems};
use serde_json::{Map, Value};

use super::client::Failed;
use crate::changes::{Format, Ids, MOST_REQUESTS};
use crate::document::{Document, MAX_TEXT, read_filled, read_json};

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
        let document = document(path)?;
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
            let format = filled(resources, format, Ids::Needed).map_err(|mut problems| {
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

/// The layout of a whole configuration, which has its variables filled in then.
pub(super) fn filled(
    resources: &mut Value,
    format: Option<Format>,
    ids: Ids,
) -> Result<Format, Problems> {
    let format = match format {
        Some(format) => format,
        None => Format::of(resources, ids)?,
    };
    format.fill(resources, "", &|name| std::env::var(name).ok())?;
    Ok(format)
}

/// Problems with their places in a file.
pub(super) fn in_file(mut problems: Problems, document: &Document) -> Failed {
    for problem in problems.iter_mut() {
        problem.file = Some(Arc::clone(document.file()));
        problem.place = document.place(&problem.path);
    }
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
