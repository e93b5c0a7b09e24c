//! The collections of the Admin API: what each is called, and what may be done with it.

use serde_json::Value;

use crate::config::kind::{Key, Kind};
use crate::config::resource::Id;

/// A path that was understood: a collection, or one item in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    /// The consumer of credentials, the manager of a secret.
    pub(super) owner: Option<String>,
    pub(super) id: Option<String>,
    /// What is below the item: only PATCH has a use for it.
    pub(super) below: Vec<String>,
}

impl Target {
    /// Reads a path. `None` when there is no such collection.
    pub(super) fn read(segments: &[String]) -> Option<Target> {
        let name = segments.first()?;
        let mut kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.plural() == name && *kind != Kind::Credential)?;
        let mut rest = &segments[1..];
        let mut owner = None;
        match (kind, rest) {
            (Kind::Consumer, [consumer, word, more @ ..]) if word == "credentials" => {
                (kind, owner, rest) = (Kind::Credential, Some(consumer.clone()), more);
            }
            (Kind::Secret, [manager, more @ ..]) if !manager.is_empty() => {
                (owner, rest) = (Some(manager.clone()), more);
            }
            _ => {}
        }
        let (id, below) = match rest {
            [id, below @ ..] => (Some(id.clone()), below.to_vec()),
            [] => (None, Vec::new()),
        };
        Some(Target {
            kind,
            owner,
            id: id.filter(|id| !id.is_empty()),
            below,
        })
    }

    /// Where the store has the collection, with the slash at its end. Secrets are listed all
    /// together, whichever manager is named.
    pub(super) fn folder(&self) -> String {
        match (self.kind, &self.owner) {
            (Kind::Credential, Some(owner)) => format!("consumers/{owner}/credentials/"),
            (kind, _) => format!("{}/", kind.plural()),
        }
    }

    /// Where the store has an item of the collection.
    pub(super) fn path(&self, id: &str) -> String {
        match (self.kind, &self.owner) {
            (Kind::Secret, Some(manager)) => format!("secrets/{manager}/{id}"),
            _ => format!("{}{id}", self.folder()),
        }
    }
}

/// What an item of a list is: credentials are among the consumers. Without an id its place in the
/// list stands for one, as in a file.
pub(super) fn item_key(kind: Kind, item: &Value, at: usize) -> Key {
    let text = |name: &str| item.get(name).and_then(Id::text);
    let id = text("id");
    let credential = id.as_ref().is_some_and(|id| id.contains("/credentials/"));
    let (kind, id) = match kind {
        Kind::Consumer if credential => (Kind::Credential, id),
        Kind::Consumer => (kind, text("username")),
        _ => (kind, id),
    };
    match id {
        Some(id) => Key::new(kind, &id),
        None => Key::new(kind, &format!("arr_{}", at + 1)),
    }
}

/// What a kind is called in messages.
pub(super) fn called(kind: Kind) -> &'static str {
    match kind {
        Kind::PluginMetadata => "plugin_metadata",
        Kind::Upstream => "upstream",
        Kind::Ssl => "ssl",
        Kind::PluginConfig => "plugin config",
        Kind::Service => "service",
        Kind::ConsumerGroup => "consumer group",
        Kind::Consumer => "consumer",
        Kind::Credential => "credential",
        Kind::GlobalRule => "global rule",
        Kind::Route => "route",
        Kind::Proto => "proto",
        Kind::Secret => "secret",
        Kind::StreamRoute => "stream route",
    }
}

/// What the schema of a kind is called.
pub(super) fn schema_name(kind: Kind) -> String {
    called(kind).replace(' ', "_")
}

/// Whether items may be made under an id that is chosen here.
pub(super) fn has_post(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Route | Kind::Service | Kind::Upstream | Kind::Ssl | Kind::Proto | Kind::StreamRoute
    )
}

/// Whether items may be changed in part.
pub(super) fn has_patch(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Consumer | Kind::Credential | Kind::PluginMetadata | Kind::Proto | Kind::StreamRoute
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_collections_and_items() {
        let check = |path: &str, expected: Option<(&str, Option<&str>, usize)>| {
            let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
            let got = Target::read(&segments);
            let got = got
                .as_ref()
                .map(|t| (t.folder(), t.id.as_deref(), t.below.len()));
            let expected = expected.map(|(folder, id, below)| (folder.to_owned(), id, below));
            assert_eq!(got, expected, "{path}");
        };
        check("routes", Some(("routes/", None, 0)));
        check("routes/", Some(("routes/", None, 0)));
        check("routes/1", Some(("routes/", Some("1"), 0)));
        check("routes/1/upstream/nodes", Some(("routes/", Some("1"), 2)));
        check("consumers/a", Some(("consumers/", Some("a"), 0)));
        check(
            "consumers/a/credentials",
            Some(("consumers/a/credentials/", None, 0)),
        );
        check(
            "consumers/a/credentials/c",
            Some(("consumers/a/credentials/", Some("c"), 0)),
        );
        check("secrets/vault/1", Some(("secrets/", Some("1"), 0)));
        check("secrets/vault", Some(("secrets/", None, 0)));
        check("credentials/a", None);
        check("ssl", None);
    }
}
