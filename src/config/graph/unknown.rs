//! Variables that mean nothing, such as `$remote_adr`: accepted as in APISIX, but never with a value.

use std::cell::RefCell;
use std::collections::BTreeSet;

use lockgate_plugin::{Problem, Problems, Var};

use super::Graph;
use crate::config::kind::{Key, Kind};

impl Graph {
    /// Warns of each name that a resource uses and nobody knows.
    pub(super) fn warn_of_unknown(&self, key: &Key, warnings: &mut Problems) {
        let id = &key.id;
        let instances = match key.kind {
            Kind::Route => {
                let route = self.routes.get(id);
                if let Some(vars) = route.and_then(|route| route.vars.as_ref()) {
                    warn(key, "vars".to_owned(), warnings, |is| vars.any_var(is));
                }
                route.and_then(|route| route.instances.as_ref())
            }
            Kind::Service => self.services.get(id).and_then(|s| s.instances.as_ref()),
            Kind::PluginConfig => self.plugin_configs.get(id),
            Kind::ConsumerGroup => self.groups.get(id),
            Kind::Consumer => self.consumers.get(id).map(|consumer| &consumer.instances),
            Kind::GlobalRule => self.global_rules.get(id),
            _ => None,
        };
        for instance in instances.into_iter().flat_map(|list| list.iter()) {
            let path = format!("plugins.{}", instance.def.name);
            warn(key, path, warnings, |is| instance.any_var(is));
        }
    }
}

fn warn(
    key: &Key,
    path: String,
    warnings: &mut Problems,
    any_var: impl FnOnce(&dyn Fn(&Var) -> bool) -> bool,
) {
    let names = RefCell::new(BTreeSet::new());
    any_var(&|var| {
        if !var.is_known() {
            names.borrow_mut().insert(var.name().to_owned());
        }
        false
    });
    let names = names.into_inner();
    if names.is_empty() {
        return;
    }
    let names: Vec<String> = names.into_iter().collect();
    let text = format!("unknown variables never have a value: {}", names.join(", "));
    let mut problem = Problem::new(path, text);
    problem.resource = key.to_string();
    warnings.push(problem);
}
