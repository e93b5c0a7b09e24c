//! Which plugin instances run in which phase, in order: flat slices, made once.

use std::sync::Arc;

use bytes::Bytes;
use lockgate_plugin::{Expr, Handler, Phase, Phases, PluginDef, Var};
use serde_json::Value;

/// Where a plugin's configuration came from. The order is the precedence, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The route's service.
    Service,
    /// The route's plugin_config.
    PluginConfig,
    /// The route itself.
    Route,
    /// The consumer's group.
    ConsumerGroup,
    /// The consumer.
    Consumer,
    /// A global rule; a list of its own.
    Global,
}

impl Level {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Service => "service",
            Level::PluginConfig => "plugin_config",
            Level::Route => "route",
            Level::ConsumerGroup => "consumer_group",
            Level::Consumer => "consumer",
            Level::Global => "global_rule",
        }
    }
}

/// The `_meta` object of a plugin configuration, checked.
#[derive(Clone, Default)]
pub struct Meta {
    /// Takes part in merging, then is left out.
    pub disable: bool,
    /// Replaces the plugin's own priority; its presence makes a whole list sort by it.
    pub priority: Option<i32>,
    /// Runs only where this holds.
    pub gate: Option<Arc<Expr>>,
    /// Replaces the body of the plugin's own answers of 400 and above.
    pub on_error: Option<Bytes>,
}

/// A plugin instance as one resource configures it. Shared by every plan it is merged into.
pub struct Instance {
    /// The plugin.
    pub def: &'static PluginDef,
    /// The built plugin; absent when it is disabled and its configuration is not valid.
    pub handler: Option<Arc<dyn Handler>>,
    /// The `_meta` object.
    pub meta: Meta,
    /// Fingerprint of the configuration, `_meta` included.
    pub fingerprint: u64,
    /// The configuration, kept where a change of the plugin's metadata has to build it again.
    pub conf: Option<Arc<Value>>,
}

impl Instance {
    /// Whether it uses a variable of which `is` holds when it runs.
    pub fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        let gate = self.meta.gate.as_ref();
        let runs = self.handler.as_ref().filter(|_| !self.meta.disable);
        runs.is_some_and(|handler| handler.any_var(is) || gate.is_some_and(|gate| gate.any_var(is)))
    }

    /// Whether it looks into the request body.
    pub fn needs_body(&self) -> bool {
        self.any_var(&Var::needs_body)
    }
}

/// The instances of one resource.
pub type Instances = Arc<[Arc<Instance>]>;

/// One plugin in one phase.
#[derive(Clone)]
pub struct Link {
    /// The plugin.
    pub handler: Arc<dyn Handler>,
    /// See [`Meta::gate`].
    pub gate: Option<Arc<Expr>>,
    /// See [`Meta::on_error`].
    pub on_error: Option<Bytes>,
    /// Where it came from.
    pub level: Level,
    /// Its priority in this plan.
    pub priority: i32,
    /// Stays silent when the route has the same plugin (global rules only).
    pub prefer_route: bool,
}

impl Link {
    /// Identity of the plugin instance, the key of its per-request values.
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.handler).cast::<()>() as usize
    }
}

/// The plugins of a route (or of all global rules), ready to run.
#[derive(Clone, Default)]
pub struct Plan {
    phases: [Box<[Link]>; 6],
    /// The union of all links' phases.
    used: Phases,
    needs_body: bool,
    finds_consumer: bool,
    /// Every enabled plugin, in order of priority.
    names: Box<[&'static str]>,
}

impl Plan {
    /// The links of a phase, in order.
    pub fn links(&self, phase: Phase) -> &[Link] {
        &self.phases[phase as usize]
    }

    /// Whether any plugin acts in a phase.
    pub fn uses(&self, phase: Phase) -> bool {
        self.used.has(phase)
    }

    /// Whether any plugin looks into the request body.
    pub fn needs_body(&self) -> bool {
        self.needs_body
    }

    /// Whether any plugin may find the consumer.
    pub fn finds_consumer(&self) -> bool {
        self.finds_consumer
    }

    /// Whether a plugin is enabled in this plan.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Whether nothing runs at all.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Merges instances of several levels: of two with the same name the higher level wins, whole.
    pub fn merge(levels: &[(Level, &[Arc<Instance>])]) -> Plan {
        let chosen = Plan::choose(levels).into_iter();
        Plan::of(chosen.map(|(level, instance)| (level, &**instance)))
    }

    /// The instances that [`merge`](Self::merge) makes a plan of, those that are disabled included.
    pub fn choose<'a>(levels: &[(Level, &'a [Arc<Instance>])]) -> Vec<(Level, &'a Arc<Instance>)> {
        let mut chosen: Vec<(Level, &Arc<Instance>)> = Vec::new();
        for &(level, instances) in levels {
            for instance in instances {
                let same =
                    |(_, other): &&mut (Level, &Arc<Instance>)| other.def.name == instance.def.name;
                match chosen.iter_mut().find(same) {
                    Some(held) if held.0 <= level => *held = (level, instance),
                    Some(_) => {}
                    None => chosen.push((level, instance)),
                }
            }
        }
        chosen
    }

    /// A plan of instances that are all to run.
    pub fn of<'a>(instances: impl Iterator<Item = (Level, &'a Instance)>) -> Plan {
        let (mut needs_body, mut finds_consumer) = (false, false);
        let mut links: Vec<Link> = instances
            .filter(|(_, instance)| !instance.meta.disable)
            .inspect(|(_, instance)| {
                needs_body |= instance.needs_body();
                finds_consumer |= instance.def.credential.is_some();
            })
            .filter_map(|(level, instance)| {
                Some(Link {
                    handler: Arc::clone(instance.handler.as_ref()?),
                    gate: instance.meta.gate.clone(),
                    on_error: instance.meta.on_error.clone(),
                    level,
                    priority: instance.meta.priority.unwrap_or(instance.def.priority),
                    prefer_route: instance.def.prefer_route,
                })
            })
            .collect();
        // By name among equals, so that a plan never depends on the order of arrival.
        links.sort_by(|a, b| {
            b.priority
                .cmp(&a.priority)
                .then_with(|| a.handler.name().cmp(b.handler.name()))
        });
        let of = |phase: Phase| -> Box<[Link]> {
            links
                .iter()
                .filter(|link| link.handler.phases().has(phase))
                .cloned()
                .collect()
        };
        let phases = Phase::ALL.map(of);
        let used = links
            .iter()
            .fold(Phases::NONE, |used, link| used.and(link.handler.phases()));
        Plan {
            phases,
            used,
            needs_body,
            finds_consumer,
            names: links.iter().map(|link| link.handler.name()).collect(),
        }
    }

    /// One line a phase that anybody acts in, for `lockgate routes` and for comparing plans.
    pub fn describe(&self) -> Vec<String> {
        let line = |phase: Phase| {
            let links: Vec<String> = self
                .links(phase)
                .iter()
                .map(|l| format!("{}({}, {})", l.handler.name(), l.priority, l.level.name()))
                .collect();
            (!links.is_empty()).then(|| format!("{}: {}", phase.name(), links.join(" > ")))
        };
        Phase::ALL.into_iter().filter_map(line).collect()
    }
}
