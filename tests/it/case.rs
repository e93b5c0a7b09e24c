//! Case files: loading them strictly, and making a case's resources its own among hundreds of neighbours.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::check::Check;
use crate::place::Places;
use crate::step::Step;
use crate::value::{Fields, from_yaml, merge, text};

/// Lists that cannot disturb other cases once ids and hosts are a case's own.
const OWN: [&str; 8] = [
    "routes",
    "services",
    "upstreams",
    "consumers",
    "consumer_groups",
    "plugin_configs",
    "ssls",
    "protos",
];
/// Lists that act on every request.
const GLOBAL: [&str; 5] = [
    "global_rules",
    "plugin_metadata",
    "secrets",
    "stream_routes",
    "plugins",
];
/// Keys that refer to another resource by id.
const REFERENCES: [&str; 5] = [
    "service_id",
    "upstream_id",
    "plugin_config_id",
    "group_id",
    "proto_id",
];
/// Ids may have 64 characters; this leaves room for a case's own part.
const ID_LENGTH: usize = 28;

/// A loaded file.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Path below `tests/cases`.
    pub(crate) file: String,
    /// `${id}`.
    pub(crate) id: String,
    /// `${host}`.
    pub(crate) host: String,
    /// Needs a gateway of its own.
    pub(crate) alone: bool,
    /// Merged into config.yaml.
    pub(crate) config: Option<Value>,
    /// Resource lists, placeholders not yet filled.
    pub(crate) resources: Map<String, Value>,
    /// Steps, placeholders not yet filled.
    pub(crate) steps: Vec<Value>,
    /// Runs of `lockgate check`.
    pub(crate) checks: Vec<Check>,
}

/// Whether a key names a resource list.
pub(crate) fn is_resource(key: &str) -> bool {
    OWN.contains(&key) || GLOBAL.contains(&key)
}

/// Loads every `*.yaml` below `root`, sorted; all mistakes of all files are reported.
pub(crate) fn load_all(root: &Path) -> Result<Vec<Case>> {
    let mut files = Vec::new();
    walk(root, &mut files)?;
    files.sort();
    let (mut cases, mut wrong) = (Vec::new(), Vec::new());
    for (number, path) in files.iter().enumerate() {
        let file = path.strip_prefix(root)?.to_string_lossy().into_owned();
        let source = std::fs::read_to_string(path).with_context(|| file.clone())?;
        match Case::parse(&file, number, &source) {
            Ok(case) => cases.push(case),
            Err(error) => wrong.push(format!("{file}: {error:#}")),
        }
    }
    ensure!(wrong.is_empty(), "bad case files\n  {}", wrong.join("\n  "));
    Ok(cases)
}

fn walk(folder: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, out)?;
        } else if path.extension().is_some_and(|e| e == "yaml") {
            out.push(path);
        }
    }
    Ok(())
}

impl Case {
    /// Reads one file. `number` makes the id unique.
    pub(crate) fn parse(file: &str, number: usize, source: &str) -> Result<Self> {
        let root = from_yaml(source)?;
        let f = Fields::new(&root, "")?;
        let stem = Path::new(file)
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy();
        let stem = stem
            .to_ascii_lowercase()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let stem: String = stem.chars().take(ID_LENGTH - 4).collect();
        let id = format!("{stem}-{number}");
        let host = format!("{id}.case.test");
        let mut resources = Map::new();
        let mut needs_alone = None;
        for key in OWN.into_iter().chain(GLOBAL) {
            let Some(value) = f.value(key) else { continue };
            ensure!(value.is_array(), "{key}: expected a list");
            if GLOBAL.contains(&key) {
                needs_alone = Some(key);
            }
            resources.insert(key.to_owned(), value.clone());
        }
        let mut config = f.value("config").cloned();
        if f.bool("admin")?.unwrap_or(false) {
            ensure!(
                resources.is_empty(),
                "with `admin` the steps write the resources"
            );
            let mut with_store = json!({ "deployment": { "role": "traditional" } });
            merge(&mut with_store, &config.unwrap_or_else(|| json!({})));
            config = Some(with_store);
        }
        let alone = f.bool("alone")?.unwrap_or(config.is_some());
        if let Some(key) = needs_alone {
            ensure!(alone, "{key} act on every request: add `alone: true`");
        }
        ensure!(
            config.is_none() || alone,
            "config needs a gateway of its own"
        );
        let steps = f.list("steps")?.to_vec();
        for (at, step) in steps.iter().enumerate() {
            Step::parse(step, &format!("steps[{at}]"), "x")?;
        }
        let parse = |(at, value)| Check::parse(value, &format!("check[{at}]"));
        let checks: Vec<Check> = f
            .list("check")?
            .iter()
            .enumerate()
            .map(parse)
            .collect::<Result<_>>()?;
        f.finish()?;
        ensure!(
            !steps.is_empty() || !checks.is_empty(),
            "steps or check is needed"
        );
        ensure!(
            checks.is_empty() || (steps.is_empty() && resources.is_empty()),
            "check stands alone"
        );
        let case = Case {
            file: file.to_owned(),
            id,
            host,
            alone,
            config,
            resources,
            steps,
            checks,
        };
        case.own(&case.resources)?;
        for step in &case.steps {
            if let Some(Value::Object(edit)) = step.get("edit") {
                case.own(edit)?;
            }
        }
        Ok(case)
    }

    /// Resource lists ready for the gateway: made the case's own, placeholders filled.
    pub(crate) fn place(
        &self,
        lists: &Map<String, Value>,
        places: &Places,
    ) -> Result<Map<String, Value>> {
        match places.fill(&Value::Object(self.own(lists)?))? {
            Value::Object(map) => Ok(map),
            _ => bail!("not a map"),
        }
    }

    /// Prefixes ids and references and gives routes the case's host.
    fn own(&self, lists: &Map<String, Value>) -> Result<Map<String, Value>> {
        let mut lists = lists.clone();
        if self.alone {
            return Ok(lists);
        }
        for (list, items) in &mut lists {
            ensure!(
                !GLOBAL.contains(&list.as_str()),
                "{list} act on every request: add `alone: true`"
            );
            for (at, item) in items.as_array_mut().into_iter().flatten().enumerate() {
                refer(item);
                let at = format!("{list}[{at}]");
                // What is not a map is there to be rejected.
                let Some(item) = item.as_object_mut() else {
                    continue;
                };
                self.own_item(list, item, &at).with_context(|| at.clone())?;
            }
        }
        Ok(lists)
    }

    fn own_item(&self, list: &str, item: &mut Map<String, Value>, at: &str) -> Result<()> {
        match item.get("id") {
            Some(id) => {
                let id = text(id)?;
                let sign = if list == "consumers" { '_' } else { '-' };
                item.insert("id".into(), json!(prefixed(&id, sign)));
            }
            None if list != "consumers" => {
                let tail = at.replace(['[', ']'], "-");
                item.insert(
                    "id".into(),
                    json!(format!("${{id}}-{}", tail.trim_end_matches('-'))),
                );
            }
            None => {}
        }
        if let Some(Value::String(name)) = item.get("username") {
            let name = prefixed(name, '_');
            item.insert("username".into(), json!(name));
        }
        for key in ["host", "hosts", "sni", "snis"] {
            let hosts = match item.get(key) {
                Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
                Some(Value::String(host)) => vec![host.as_str()],
                _ => Vec::new(),
            };
            if let Some(bad) = hosts
                .iter()
                .find(|h| !h.contains("${host}") && !h.contains("${id}"))
            {
                bail!("{key} {bad:?} would meet other cases: use ${{host}}, or `alone: true`");
            }
        }
        let hosted = item.contains_key("host") || item.contains_key("hosts");
        if list == "routes" && !hosted && !self.service_has_hosts(item.get("service_id")) {
            item.insert("host".into(), json!("${host}"));
        }
        Ok(())
    }

    fn service_has_hosts(&self, id: Option<&Value>) -> bool {
        let wanted = |v: &Value| text(v).map(|id| prefixed(&id, '-')).ok();
        let Some(id) = id.and_then(wanted) else {
            return false;
        };
        let services = self.resources.get("services").and_then(Value::as_array);
        services.into_iter().flatten().any(|service| {
            service.get("hosts").is_some()
                && service.get("id").and_then(wanted).as_ref() == Some(&id)
        })
    }
}

fn prefixed(id: &str, sign: char) -> String {
    if id.contains("${id}") {
        id.to_owned()
    } else {
        format!("${{id}}{sign}{id}")
    }
}

/// Prefixes references at any depth (traffic-split keeps them inside plugins).
fn refer(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(refer),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(_) | Value::Number(_) if REFERENCES.contains(&key.as_str()) => {
                        if let Ok(id) = text(value) {
                            *value = json!(prefixed(&id, '-'));
                        }
                    }
                    _ => refer(value),
                }
            }
        }
        _ => {}
    }
}
