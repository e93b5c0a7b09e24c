//! `lockgate plan --from OLD --to NEW`: two files, and no gateway.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use lockgate_plugin::Problems;
use serde_json::Value;

use super::client::Failed;
use super::file::{self, in_file};
use crate::changes::draft::{Rules, draft};
use crate::changes::outcomes::{Corpus, Trial, located};
use crate::changes::{Drafted, Format, Ids, Want, What, affected, document};
use crate::config::decode::decode;
use crate::config::graph::Change;
use crate::config::keyring::Keyring;
use crate::config::kind::Key;
use crate::document::Document;
use crate::gateway;
use crate::load::{catalogue, metrics};
use crate::store::{Item, Listing};

/// Compares two files.
pub(super) fn plan(
    config: &Path,
    from: &Path,
    to: &Path,
    requests: Option<&Path>,
    format: Option<Format>,
) -> Result<Value, Failed> {
    let (settings, _) = gateway::settings(config)?;
    let (mut old, mut new) = (file::document(from)?, file::document(to)?);
    let (_, before) = wants(&mut old, format)?;
    let (format, after) = wants(&mut new, format)?;
    let lines = requests.map(file::lines).transpose()?;
    let corpus = lines.map(|lines| Corpus::of_lines("given", lines.iter().map(String::as_str)));
    let catalogue = catalogue(&settings);
    let rules = Rules {
        keyring: &Keyring::default(),
        catalogue: &catalogue,
        check: &|key, value| {
            let decoded = decode(key, value, &catalogue, &mut Problems::default());
            decoded.err().unwrap_or_default()
        },
        now: 0,
    };
    let listing = listing(&before);
    let mut changes: Vec<(Key, Value)> = after.iter().filter_map(resource).collect();
    let found = draft(after, Some(format), &listing, &rules);
    let found = found.map_err(|problems| in_file(format.told(problems), &new))?;
    // What the layout does not speak of stays.
    let named: HashSet<Key> = changes.iter().map(|(key, _)| key.clone()).collect();
    let gone: HashSet<&Key> = found.steps.iter().map(|step| &step.key).collect();
    let stay = before.iter().filter_map(resource);
    changes.extend(stay.filter(|(key, _)| !named.contains(key) && !gone.contains(key)));
    let routes = affected(&found.steps, &listing, &rules);
    let metrics = metrics(&settings)?;
    let peers = crate::cluster::peers(&settings)
        .map_err(|problems| Failed::Text(format!("{}: {problems}", config.display())))?;
    let trial: Trial = gateway::trial(&settings, &metrics, peers.as_ref())
        .map_err(|error| Failed::Text(format!("{}: {error}", config.display())))?;
    let mut graph = trial.graph();
    let start = before.iter().filter_map(resource).enumerate();
    let start = start.map(|(at, (key, value))| Change::Put(key, Arc::new(value), Some(at)));
    graph.apply(start.collect());
    let changes = graph.difference(changes.iter().map(|(key, value)| (key.clone(), value)));
    let corpus = corpus.unwrap_or_default();
    let tried = trial.compare(&mut graph, changes, &found.steps, &corpus);
    let tried =
        tried.map_err(|problems| in_file(format.told(located(problems, &found.steps)), &new))?;
    let mut plan = Drafted {
        draft: found,
        routes,
        format: Some(format),
    }
    .shown();
    plan["revision"] = Value::Null;
    plan["requests"] = if requests.is_some() {
        tried
    } else {
        Value::Null
    };
    Ok(plan)
}

/// The resources of a file, and its layout.
fn wants(file: &mut Document, format: Option<Format>) -> Result<(Format, Vec<Want>), Failed> {
    let mut value = file.value().clone();
    let found = file::filled(&mut value, format, Ids::Optional, file)
        .and_then(|format| document(&value, "", Ids::Optional, Some(format)));
    found.map_err(|problems| in_file(problems, file))
}

/// The resources as if a store held them, in the order of the file.
fn listing(wants: &[Want]) -> Listing {
    let item = |(at, want): (u64, &Want)| match &want.what {
        What::Value(value) => Some(Item {
            path: want.key.to_string().into(),
            text: value.to_string().into(),
            created: at,
            modified: at,
        }),
        _ => None,
    };
    let mut items: Vec<Item> = (1..).zip(wants).filter_map(item).collect();
    let revision = items.len() as u64;
    items.sort_by(|a, b| a.path.cmp(&b.path));
    Listing {
        items,
        revision,
        identity: 0,
    }
}

/// A resource as the gateway reads it from a file.
fn resource(want: &Want) -> Option<(Key, Value)> {
    match &want.what {
        What::Value(value) => Some((want.key.clone(), value.clone())),
        _ => None,
    }
}
