//! Consumers in the graph: credentials, plugins, groups.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lockgate_plugin::{Consumer as ConsumerInfo, ConsumerCredential, Problems};
use serde_json::Value;

use super::{Dirty, Graph};
use crate::config::catalogue::Found;
use crate::config::compile::plan::Instances;
use crate::config::consumers::{ConsumerEntry, ConsumerPlugins};
use crate::config::decode::split_meta;
use crate::config::kind::{Key, Kind};
use crate::config::resource::{Consumer, Credential, Plugins};

/// What is kept of a consumer.
pub(super) struct ConsumerNode {
    labels: BTreeMap<String, String>,
    pub(super) group_id: Option<Arc<str>>,
    /// Plugins that run; credentials are not among them.
    pub(super) instances: Instances,
    presented: Vec<Presented>,
    /// What the table has, to be taken out again.
    known: Vec<(&'static str, Box<str>, Arc<ConsumerCredential>)>,
}

/// A credential resource.
pub(super) struct CredentialNode {
    pub(super) consumer: Arc<str>,
    presented: Vec<Presented>,
}

/// What a request presents to be recognised.
#[derive(Clone)]
struct Presented {
    plugin: &'static str,
    key: Box<str>,
    conf: Arc<dyn Any + Send + Sync>,
}

impl Graph {
    pub(super) fn take_consumer(
        &mut self,
        key: &Key,
        consumer: &Consumer,
        dirty: &mut Dirty,
    ) -> Result<(), Problems> {
        let (own, presented) = self.sort_plugins(consumer.plugins.as_ref())?;
        let old = self.consumers.get(&key.id).map(|old| &old.instances);
        let instances = self.workshop.instances(&key.to_string(), Some(&own), old)?;
        let group_id = consumer.group_id.as_ref().map(|id| Arc::clone(&id.0));
        let group = group_id.iter().map(|id| Key {
            kind: Kind::ConsumerGroup,
            id: Arc::clone(id),
        });
        self.refer(key, &group.collect::<Vec<_>>());
        let known = self
            .consumers
            .get_mut(&key.id)
            .map(|old| std::mem::take(&mut old.known));
        let node = ConsumerNode {
            labels: consumer.labels.clone().unwrap_or_default(),
            group_id,
            instances,
            presented,
            known: known.unwrap_or_default(),
        };
        self.consumers.insert(Arc::clone(&key.id), node);
        dirty.consumers.insert(Arc::clone(&key.id));
        Ok(())
    }

    pub(super) fn take_credential(
        &mut self,
        key: &Key,
        credential: &Credential,
        dirty: &mut Dirty,
    ) -> Result<(), Problems> {
        let (_, presented) = self.sort_plugins(credential.plugins.as_ref())?;
        let name = key.id.split("/credentials/").next().unwrap_or_default();
        let consumer: Arc<str> = name.into();
        dirty.consumers.insert(Arc::clone(&consumer));
        self.credentials.insert(
            Arc::clone(&key.id),
            CredentialNode {
                consumer,
                presented,
            },
        );
        Ok(())
    }

    /// Parts plugins into those that run and those that hold credentials.
    fn sort_plugins(
        &self,
        plugins: Option<&Plugins>,
    ) -> Result<(Plugins, Vec<Presented>), Problems> {
        let (mut own, mut presented) = (Plugins::default(), Vec::new());
        for (name, conf) in plugins.into_iter().flatten() {
            let Found::Ready(def) = self.workshop.catalogue.find(name) else {
                continue;
            };
            match &def.credential {
                None => {
                    own.insert(name.clone(), conf.clone());
                }
                Some(credential) => {
                    let (conf, meta): (Value, _) = split_meta(conf)?;
                    if meta.disable {
                        continue;
                    }
                    let (key, conf) = (credential.parse)(&conf)?;
                    presented.push(Presented {
                        plugin: def.name,
                        key: key.into(),
                        conf,
                    });
                }
            }
        }
        Ok((own, presented))
    }

    pub(super) fn forget_consumer(&mut self, name: &Arc<str>) {
        if let Some(node) = self.consumers.remove(name) {
            for (plugin, key, held) in &node.known {
                self.snapshot.consumers.forget(plugin, key, held);
            }
        }
        self.snapshot.consumers.remove(name);
        self.body_reading_consumers.remove(name);
    }

    /// Puts a consumer and its credentials into the table.
    pub(super) fn compile_consumer(&mut self, name: &Arc<str>) {
        self.version += 1;
        let version = self.version;
        let Some(node) = self.consumers.get_mut(name) else {
            return;
        };
        let table = &mut self.snapshot.consumers;
        for (plugin, key, held) in node.known.drain(..) {
            table.forget(plugin, &key, &held);
        }
        let info = Arc::new(ConsumerInfo {
            username: Arc::clone(name),
            group_id: node.group_id.clone(),
            labels: node.labels.clone(),
        });
        let credential = |id: Option<Arc<str>>, conf: Arc<dyn Any + Send + Sync>| {
            Arc::new(ConsumerCredential {
                consumer: Arc::clone(&info),
                credential_id: id,
                conf,
                version,
            })
        };
        for presented in &node.presented {
            let made = credential(None, Arc::clone(&presented.conf));
            table.learn(presented.plugin, &presented.key, Arc::clone(&made));
            node.known
                .push((presented.plugin, presented.key.clone(), made));
        }
        let prefix = format!("{name}/credentials/");
        let from = (Bound::Included(&*prefix), Bound::Unbounded);
        let own = self.credentials.range::<str, _>(from);
        for (id, held) in own.take_while(|(id, _)| id.starts_with(&prefix)) {
            let short: Arc<str> = id.rsplit('/').next().unwrap_or_default().into();
            for presented in &held.presented {
                let made = credential(Some(Arc::clone(&short)), Arc::clone(&presented.conf));
                table.learn(presented.plugin, &presented.key, Arc::clone(&made));
                node.known
                    .push((presented.plugin, presented.key.clone(), made));
            }
        }
        let group = node.group_id.as_ref().map(|id| self.groups.get(id));
        let plugins = ConsumerPlugins {
            own: Arc::clone(&node.instances),
            missing_group: matches!(group, Some(None)),
            group: group.flatten().cloned(),
        };
        if plugins.need_body() {
            self.body_reading_consumers.insert(Arc::clone(name));
        } else {
            self.body_reading_consumers.remove(name);
        }
        let entry = ConsumerEntry {
            identity: credential(None, Arc::new(())),
            plugins: Arc::new(plugins),
        };
        table.insert(Arc::clone(name), entry);
    }
}
