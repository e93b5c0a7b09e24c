//! Whether a resource may be stored: the same checks as for a file, with the answers of APISIX.

use lockgate_plugin::{Problem, Problems, schema};
use serde_json::Value;

use crate::config::catalogue::{Catalogue, Found};
use crate::config::compile::instance::Workshop;
use crate::config::decode::{decode, schema_of, split_meta};
use crate::config::kind::{Key, Kind};
use crate::config::resource::Plugins;
use crate::endpoint::Answer;

/// Problems that an answer tells of besides the first.
const MORE: usize = 9;

/// Messages that APISIX answers as they are; others begin with `invalid configuration: `.
const BARE: [&str; 11] = [
    "only one of host",
    "only one of remote_addr",
    "failed to validate the 'vars' expression",
    "failed to parse ",
    "failed to handle cert-key pair",
    "`upstream_host` can't be empty",
    "invalid port ",
    "missing key",
    "invalid plugin name",
    "invalid secret manager",
    "unknown protocol",
];

/// See the module.
pub(super) struct Checker {
    /// Builds plugins to see whether they can be built. What it builds is dropped at once.
    workshop: Workshop,
}

impl Checker {
    pub(super) fn new(workshop: Workshop) -> Checker {
        Checker { workshop }
    }

    pub(super) fn catalogue(&self) -> &Catalogue {
        &self.workshop.catalogue
    }

    /// Checks a resource; the answer says what is wrong.
    pub(super) fn check(&self, key: &Key, value: &Value) -> Result<(), Answer> {
        self.problem(key, value)
            .map_or(Ok(()), |text| Err(Answer::bad(text)))
    }

    /// Everything that is wrong with a resource; paths are inside of it.
    pub(super) fn problems(&self, key: &Key, value: &Value) -> Problems {
        let mut found = match decode(key, value, self.catalogue(), &mut Problems::default()) {
            Ok(_) => Problems::default(),
            Err(problems) => problems,
        };
        if found.is_empty() {
            nulls(value, &mut found);
            bare_addresses(key, value, &mut found);
        }
        if found.is_empty() {
            found = self.build(key, value);
        }
        found
    }

    /// What is wrong with a resource, in one text.
    pub(super) fn problem(&self, key: &Key, value: &Value) -> Option<String> {
        let found = self.problems(key, value);
        let mut problems = found.iter();
        let first = problems.next()?;
        let mut text = self.worded(key, value, first);
        for other in problems.by_ref().take(MORE) {
            if in_other_words(key, other).is_some_and(|same| same == text) {
                continue;
            }
            match other.path.as_str() {
                "" => text.push_str(&format!("; {}", other.message)),
                path => text.push_str(&format!("; {path}: {}", other.message)),
            }
        }
        match problems.count() {
            0 => {}
            rest => text.push_str(&format!("; and {rest} more")),
        }
        Some(text)
    }

    /// What the plugins say when they are built, which is what the gateway does next.
    fn build(&self, key: &Key, value: &Value) -> Problems {
        let plugins = value.get("plugins").and_then(Value::as_object);
        let runs = |name: &str| match self.catalogue().find(name) {
            Found::Ready(def) => key.kind != Kind::Consumer || def.credential.is_none(),
            _ => false,
        };
        let plugins: Plugins = match key.kind {
            // Neither is run.
            Kind::Credential | Kind::StreamRoute => return Problems::default(),
            _ => plugins
                .into_iter()
                .flatten()
                .filter(|(name, _)| runs(name))
                .map(|(name, conf)| (name.clone(), conf.clone()))
                .collect(),
        };
        let built = self
            .workshop
            .instances(&key.to_string(), Some(&plugins), None);
        built.err().unwrap_or_default()
    }

    /// A problem in the words of APISIX.
    fn worded(&self, key: &Key, value: &Value, problem: &Problem) -> String {
        if let Some(rest) = problem.path.strip_prefix("plugins.") {
            return self.worded_plugin(key, value, rest, problem);
        }
        if let Some(text) = in_other_words(key, problem) {
            return text;
        }
        if BARE.iter().any(|start| problem.message.starts_with(start)) {
            return problem.message.clone();
        }
        let by_schema = schema_of(key).and_then(|schema| schema::apisix_text(&schema, value));
        let text = by_schema.unwrap_or_else(|| nested(&problem.path, &problem.message));
        format!("invalid configuration: {text}")
    }

    fn worded_plugin(&self, key: &Key, value: &Value, rest: &str, problem: &Problem) -> String {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, path) = rest.split_at(end);
        let message = &problem.message;
        let of_name = ["unknown plugin", "only supports auth type"];
        if path.is_empty()
            && (of_name.iter().any(|start| message.starts_with(start))
                || message.ends_with("is not available in this version"))
        {
            return message.clone();
        }
        let conf = value.get("plugins").and_then(|plugins| plugins.get(name));
        let by_schema = conf.and_then(|conf| {
            let Found::Ready(def) = self.catalogue().find(name) else {
                return None;
            };
            let plain = split_meta(conf).ok()?.0;
            let credential = def.credential.filter(|_| is_consumer(key));
            let schema = credential.map_or_else(|| (def.schema)(), |c| (c.schema)());
            schema::apisix_text(&schema, &plain)
        });
        // Rules beyond the schema name what they are about themselves.
        let text = by_schema.unwrap_or_else(|| message.clone());
        let text = format!("failed to check the configuration of plugin {name} err: {text}");
        if is_consumer(key) {
            format!("invalid plugins configuration: {text}")
        } else {
            text
        }
    }
}

/// What APISIX says where its check is made in another way than the one here.
fn in_other_words(key: &Key, problem: &Problem) -> Option<String> {
    let (message, path) = (problem.message.as_str(), problem.path.as_str());
    let invalid = |text: &str| Some(format!("invalid configuration: {text}"));
    // OpenSSL's reasons are not those of APISIX's reader, which gives none.
    for (start, reader) in [
        ("failed to parse cert", "PEM_read_bio_X509_AUX() failed"),
        ("failed to parse key", "PEM_read_bio_PrivateKey() failed"),
    ] {
        if let Some(at) = message.find(start) {
            return Some(format!("{}{start}: {reader}", &message[..at]));
        }
    }
    if key.kind == Kind::Ssl {
        let needed = ["cert", "key", "sni"];
        let of_needed =
            |name: &str| message.starts_with(&format!("property \"{name}\" is required"));
        if needed.into_iter().any(of_needed) || message.starts_with("only one of sni") {
            return invalid("then clause did not match");
        }
    }
    if message == "only one of uri or uris is allowed" {
        return invalid(
            "allOf 1 failed: value should match only one schema, but matches both schemas 1 and 2",
        );
    }
    if message.starts_with("property \"uri\" is required") {
        return invalid("allOf 1 failed: value should match only one schema, but matches none");
    }
    // What `chash` hashes is checked by a schema of its own.
    let hashed = path == "key" || path == "upstream.key";
    if hashed && message.starts_with("failed to match pattern") {
        return invalid(message);
    }
    None
}

/// Reports IPv6 addresses without brackets in a list of nodes, as the original's Admin API does. In a
/// file they mean what they mean.
fn bare_addresses(key: &Key, value: &Value, out: &mut Problems) {
    let upstream = match key.kind {
        Kind::Upstream => Some(value),
        _ => value.get("upstream"),
    };
    let nodes = upstream.and_then(|upstream| upstream.get("nodes"));
    let hosts = nodes.and_then(Value::as_array).into_iter().flatten();
    let mut hosts = hosts.filter_map(|node| node.get("host").and_then(Value::as_str));
    if hosts.any(|host| host.parse::<std::net::Ipv6Addr>().is_ok()) {
        out.add("", "IPv6 address must be enclosed with '[' and ']'");
    }
}

fn is_consumer(key: &Key) -> bool {
    matches!(key.kind, Kind::Consumer | Kind::Credential)
}

/// A message inside the path it is about: `property "a" validation failed: failed to validate item
/// 2: ...`, positions counted from 1.
fn nested(path: &str, message: &str) -> String {
    let mut text = String::new();
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let (name, positions) = part.split_once('[').unwrap_or((part, ""));
        if !name.is_empty() {
            text.push_str(&format!("property \"{name}\" validation failed: "));
        }
        for position in positions.split('[') {
            if let Ok(at) = position.trim_end_matches(']').parse::<u64>() {
                text.push_str(&format!(
                    "failed to validate item {}: ",
                    at.saturating_add(1)
                ));
            }
        }
    }
    text + message
}

/// Reports members that are null. In a file they stand for leaving a member out; here they do
/// nothing for whoever sends them, and would stay in what is stored. What plugins make of theirs is
/// up to them.
fn nulls(value: &Value, out: &mut Problems) {
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Null => out.add(name, "wrong type: expected a value, got null"),
            _ if name == "plugins" || name == "metadata" => {}
            _ => nulls(value, &mut out.at(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checker() -> Checker {
        Checker::new(Workshop {
            catalogue: Catalogue::everything(lockgate_plugins::ALL),
            shared: Default::default(),
            states: Default::default(),
            attr: Default::default(),
            metadata: Default::default(),
        })
    }

    fn check(path: &str, value: Value, expected: &str) {
        let key = Key::from_path(path).unwrap();
        let got = checker().problem(&key, &value).unwrap_or_default();
        assert_eq!(got, expected, "{path} {value}");
    }

    #[test]
    fn what_is_valid_is_accepted() {
        let nodes = json!({"127.0.0.1:1": 1});
        check(
            "routes/1",
            json!({"id": "1", "uri": "/a", "upstream": {"nodes": nodes}}),
            "",
        );
        check("services/1", json!({}), "");
        check(
            "consumers/ann",
            json!({"username": "ann", "plugins": {"key-auth": {"key": "k"}}}),
            "",
        );
        check(
            "consumers/ann/credentials/c",
            json!({"id": "c", "plugins": {"key-auth": {"key": "k"}}}),
            "",
        );
        check(
            "plugin_metadata/cors",
            json!({"id": "cors", "allow_origins": {"a": "http://a.test"}}),
            "",
        );
    }

    #[test]
    fn mistakes_are_worded_as_in_apisix() {
        check(
            "routes/1",
            json!({"uris": [], "plugins": {}}),
            "invalid configuration: property \"uris\" validation failed: expect array to have at least 1 items",
        );
        check(
            "routes/1",
            json!({"uri": "/a", "host": "a", "hosts": ["b"], "plugins": {}}),
            "only one of host or hosts is allowed",
        );
        check(
            "upstreams/1",
            json!({"nodes": [{"host": "a", "port": 0, "weight": 1}]}),
            "invalid configuration: property \"nodes\" validation failed: failed to validate item 1: \
             property \"port\" validation failed: expected 0 to be at least 1",
        );
        check(
            "upstreams/1",
            json!({"nodes": {"a:0": 1}}),
            "invalid port 0",
        );
        check(
            "services/1",
            json!({"zzz": 1}),
            "invalid configuration: additional properties forbidden, found zzz",
        );
        check(
            "services/1",
            json!({"plugins": {"nothing": {}}}),
            "unknown plugin [nothing]",
        );
        check(
            "services/1",
            json!({"plugins": {"openwhisk": {}}}),
            "plugin openwhisk is not available in this version",
        );
        check(
            "services/1",
            json!({"plugins": {"ip-restriction": {}}}),
            "failed to check the configuration of plugin ip-restriction err: \
             value should match only one schema, but matches none",
        );
        check(
            "consumers/ann",
            json!({"username": "ann", "plugins": {"key-auth": {}}}),
            "invalid plugins configuration: failed to check the configuration of plugin key-auth err: \
             property \"key\" is required",
        );
        check(
            "consumers/ann/credentials/c",
            json!({"plugins": {"cors": {}}}),
            "only supports auth type plugins in consumer credential",
        );
        check("plugin_metadata/zzz", json!({}), "invalid plugin name");
        check(
            "services/1",
            json!({"name": null, "upstream": {"nodes": {}, "key": null}}),
            "invalid configuration: property \"name\" validation failed: wrong type: expected a value, got null; \
             upstream.key: wrong type: expected a value, got null",
        );
        check(
            "routes/1",
            json!({"uri": "/a", "plugins": {}, "vars": [["a", "=", 1]]}),
            "failed to validate the 'vars' expression: invalid operator '='",
        );
    }

    #[test]
    fn paths_become_words() {
        let check = |path: &str, expected: &str| {
            assert_eq!(nested(path, "m"), format!("{expected}m"), "{path}");
        };
        check("", "");
        check("a", "property \"a\" validation failed: ");
        check(
            "a.b[0][1].c",
            "property \"a\" validation failed: property \"b\" validation failed: failed to validate item 1: \
             failed to validate item 2: property \"c\" validation failed: ",
        );
        check("[2]", "failed to validate item 3: ");
    }
}
