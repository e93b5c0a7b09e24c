//! The plugins of a request: where each is configured, whether it runs, and in which order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lockgate_plugin::{Ctx, Phase};

use super::From;
use super::report::{Acting, Failed, PhaseSeen, PluginSeen, Runs};
use crate::config::compile::plan::{Instance, Level, Link, Plan};
use crate::config::consumers::ConsumerPlugins;
use crate::config::snapshot::{Merged, Route, Snapshot};
use crate::proxy::chain;

/// What a request's plugins come from.
pub(super) struct Chain<'a> {
    pub(super) snap: &'a Snapshot,
    pub(super) route: Option<&'a Route>,
    /// The consumer that was named, and its group.
    pub(super) consumer: Option<(&'a str, Option<&'a str>, &'a ConsumerPlugins)>,
    /// Whether anything was counted here.
    pub(super) from: From,
}

/// The detail that only a process knows which serves.
const COUNTED: &str = "used";

impl Chain<'_> {
    /// Every plugin that is configured, and who acts in which phase.
    pub(super) fn explain(&self, cx: &mut Ctx<'_>) -> (Vec<PluginSeen>, Vec<PhaseSeen>) {
        let merged = match (self.route, self.consumer) {
            (Some(route), Some((.., plugins))) if !plugins.is_empty() => Some(route.merge(plugins)),
            _ => None,
        };
        let own = self.route.map(|route| &*route.plan);
        let plan = merged.as_ref().map(|merged| &*merged.plan).or(own);
        let mut plugins = self.global(plan, cx);
        plugins.extend(self.merged(plan, cx));
        if self.from == From::File {
            for plugin in &mut plugins {
                plugin.details.retain(|(name, _)| name != COUNTED);
            }
        }
        let phases = self.phases(own, merged.as_ref(), &plugins);
        (plugins, phases)
    }

    fn global(&self, plan: Option<&Plan>, cx: &mut Ctx<'_>) -> Vec<PluginSeen> {
        let rules = self.snap.global_rules.iter();
        let all: Vec<(&str, &Instance)> = rules
            .flat_map(|(id, list)| list.iter().map(move |instance| (&**id, &**instance)))
            .collect();
        let twice = |name: &str| all.iter().filter(|(_, i)| i.def.name == name).count() > 1;
        let mut seen: Vec<PluginSeen> = all
            .iter()
            .map(|&(id, instance)| {
                let runs = match link(&self.snap.global, instance) {
                    _ if twice(instance.def.name) => Runs::Twice,
                    Some(link) if chain::is_silent(link, plan) => Runs::GivesWay,
                    _ => runs(instance, cx),
                };
                plugin(Level::Global, Some(id), instance, runs, cx)
            })
            .collect();
        sort(&mut seen);
        seen
    }

    fn merged(&self, plan: Option<&Plan>, cx: &mut Ctx<'_>) -> Vec<PluginSeen> {
        let (Some(route), Some(_)) = (self.route, plan) else {
            return Vec::new();
        };
        let levels = match self.consumer {
            Some((.., plugins)) => route.levels_with(plugins),
            None => route.levels.list(),
        };
        let chosen = Plan::choose(&levels).into_iter();
        let mut seen: Vec<PluginSeen> = chosen
            .map(|(level, instance)| {
                let id = match (level, self.consumer) {
                    (Level::Route, _) => Some(&*route.info.id),
                    (Level::Service, _) => route.info.service_id.as_deref(),
                    (Level::Consumer, Some((name, ..))) => Some(name),
                    (Level::ConsumerGroup, Some((_, group, _))) => group,
                    _ => None,
                };
                let runs = runs(instance, cx);
                plugin(level, id, instance, runs, cx)
            })
            .collect();
        sort(&mut seen);
        seen
    }

    /// As the pipeline runs them: the global rules before the route; what a consumer adds to the
    /// rewrite phase behind it, because the consumer is found in it.
    fn phases(
        &self,
        own: Option<&Plan>,
        merged: Option<&Merged>,
        plugins: &[PluginSeen],
    ) -> Vec<PhaseSeen> {
        let later = merged.map(|merged| &*merged.plan).or(own);
        let acting = |link: &Link| Acting {
            name: link.handler.name().to_owned(),
            level: link.level.name().to_owned(),
        };
        let runs = |acting: &Acting| {
            let same = |p: &&PluginSeen| p.name == acting.name && p.level == acting.level;
            let known = plugins.iter().find(same).map(|plugin| &plugin.runs);
            matches!(known, None | Some(Runs::Yes | Runs::Unknown))
        };
        let phase = |phase: Phase| {
            let mut plans = vec![Some(&*self.snap.global)];
            match phase {
                Phase::Rewrite => plans.extend([own, merged.map(|merged| &*merged.added)]),
                _ => plans.push(later),
            }
            let links = plans.into_iter().flatten().flat_map(|p| p.links(phase));
            PhaseSeen {
                phase: phase.name().to_owned(),
                plugins: links.map(acting).filter(runs).collect(),
            }
        };
        let phases = Phase::ALL.into_iter().map(phase);
        phases.filter(|seen| !seen.plugins.is_empty()).collect()
    }
}

/// The order of a plan: by priority, then by name.
fn sort(plugins: &mut [PluginSeen]) {
    plugins.sort_by(|a, b| (b.priority, &a.name).cmp(&(a.priority, &b.name)));
}

/// The link of an instance in a plan.
fn link<'p>(plan: &'p Plan, instance: &Instance) -> Option<&'p Link> {
    let handler = instance.handler.as_ref()?;
    let links = Phase::ALL.into_iter().flat_map(|phase| plan.links(phase));
    let mut same = links.filter(|link| Arc::ptr_eq(&link.handler, handler));
    same.next()
}

fn runs(instance: &Instance, cx: &Ctx<'_>) -> Runs {
    match &instance.meta.gate {
        _ if instance.meta.disable => Runs::Disabled,
        None => Runs::Yes,
        Some(gate) if gate.needs_response() => Runs::Unknown,
        Some(gate) => match gate.unmet(&cx.lookup()) {
            unmet if unmet.is_empty() => Runs::Yes,
            unmet => Runs::Filtered(Failed::of("_meta.filter", unmet)),
        },
    }
}

fn plugin(
    level: Level,
    id: Option<&str>,
    instance: &Instance,
    runs: Runs,
    cx: &mut Ctx<'_>,
) -> PluginSeen {
    let details = match (&instance.handler, &runs) {
        (Some(handler), Runs::Yes | Runs::Unknown) => {
            cx.enter(Arc::as_ptr(handler).cast::<()>() as usize);
            // A plugin that panics spoils its own line only.
            let asked = catch_unwind(AssertUnwindSafe(|| handler.explain(cx)));
            asked.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    PluginSeen {
        name: instance.def.name.to_owned(),
        level: level.name().to_owned(),
        id: id.map(str::to_owned),
        priority: instance.meta.priority.unwrap_or(instance.def.priority),
        fingerprint: format!("{:016x}", instance.fingerprint),
        runs,
        identifies: instance.def.credential.is_some(),
        details: details
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}
