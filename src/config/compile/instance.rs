//! Builds plugin instances, and takes over those whose configuration did not change.

use std::sync::Arc;

use lockgate_plugin::{BuildCx, Problems, Shared, StateStore};
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::plan::{Instance, Instances};
use crate::config::catalogue::{Catalogue, Found};
use crate::config::decode::{fingerprint, split_meta};
use crate::config::resource::Plugins;

/// What plugins are built with.
pub struct Workshop {
    /// The plugins.
    pub catalogue: Catalogue,
    /// Process-wide objects.
    pub shared: Shared,
    /// State that outlives instances.
    pub states: StateStore,
    /// `plugin_attr` of the settings.
    pub attr: Value,
    /// `plugin_metadata` by plugin.
    pub metadata: FxHashMap<Arc<str>, Arc<Value>>,
}

impl Workshop {
    /// The instances of a resource. Those in `old` with the same configuration are taken over as
    /// they are.
    ///
    /// # Errors
    /// What the plugins say against their configurations; then nothing is kept of this attempt.
    pub fn instances(
        &self,
        owner: &str,
        plugins: Option<&Plugins>,
        old: Option<&Instances>,
    ) -> Result<Instances, Problems> {
        let mut out = Problems::default();
        let mut made = Vec::new();
        for (name, conf) in plugins.into_iter().flatten() {
            let Found::Ready(def) = self.catalogue.find(name) else {
                continue;
            };
            let print = fingerprint(conf);
            let kept = old.and_then(|old| {
                old.iter()
                    .find(|i| i.def.name == def.name && i.fingerprint == print)
            });
            if let Some(kept) = kept {
                made.push(Arc::clone(kept));
                continue;
            }
            let mut at = out.at("plugins");
            match self.build(owner, def, conf, print) {
                Ok(instance) => made.push(Arc::new(instance)),
                Err(problems) => at.at(name).extend(problems),
            }
        }
        out.into_result()?;
        Ok(made.into())
    }

    fn build(
        &self,
        owner: &str,
        def: &'static lockgate_plugin::PluginDef,
        conf: &Value,
        fingerprint: u64,
    ) -> Result<Instance, Problems> {
        let (plain, meta) = split_meta(conf)?;
        let bx = BuildCx {
            owner,
            plugin: def.name,
            shared: &self.shared,
            states: &self.states,
            attr: self.attr.get(def.name).unwrap_or(&Value::Null),
            metadata: self
                .metadata
                .get(def.name)
                .map_or(&Value::Null, |value| value),
        };
        let handler = match (def.build)(&plain, &bx) {
            Ok(handler) => Some(handler),
            // Accepted with a warning by `decode`: it never runs.
            Err(_) if meta.disable => None,
            Err(problems) => return Err(problems),
        };
        // Only a plugin with metadata may have to be built again later.
        let conf = def.metadata.is_some().then(|| Arc::new(conf.clone()));
        Ok(Instance {
            def,
            handler,
            meta,
            fingerprint,
            conf,
        })
    }

    /// Builds the instances of one plugin again, after its metadata has changed.
    ///
    /// # Errors
    /// As for [`Self::instances`].
    pub fn refresh(
        &self,
        owner: &str,
        old: &Instances,
        plugin: &str,
    ) -> Result<Instances, Problems> {
        old.iter()
            .map(|instance| match &instance.conf {
                Some(conf) if instance.def.name == plugin => self
                    .build(owner, instance.def, conf, instance.fingerprint)
                    .map(Arc::new),
                _ => Ok(Arc::clone(instance)),
            })
            .collect()
    }
}
