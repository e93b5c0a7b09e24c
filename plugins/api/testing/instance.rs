//! A built plugin, for several requests and edits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::world::World;
use super::{Head, Request, Source};
use crate::build_cx::BuildCx;
use crate::phase::Phases;
use crate::plugin::{Handler, PluginDef};
use crate::problem::Problems;

/// A built plugin.
#[derive(Clone)]
pub struct Instance {
    pub(super) def: PluginDef,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) world: Arc<World>,
}

impl Instance {
    pub(super) fn new(
        def: PluginDef,
        conf: &Value,
        world: Arc<World>,
    ) -> Result<Instance, Problems> {
        let bx = BuildCx {
            owner: "routes/1",
            plugin: def.name,
            shared: &world.shared,
            states: &world.states,
            attr: &world.attr,
            metadata: &world.metadata,
        };
        let handler = (def.build)(conf, &bx)?;
        assert!(
            def.phases.contains(handler.phases()),
            "{} acts in undeclared phases",
            def.name
        );
        Ok(Instance {
            def,
            handler,
            world,
        })
    }

    /// Another request to the same instance.
    pub fn request(&self) -> Request {
        Request {
            plugin: Source::Built(self.clone()),
            head: Head::default(),
        }
    }

    /// The instance after an edit of its configuration: same owner, same surroundings, same time.
    #[track_caller]
    #[must_use]
    pub fn edited(&self, conf: &Value) -> Instance {
        match Instance::new(self.def, conf, Arc::clone(&self.world)) {
            Ok(instance) => instance,
            Err(out) => panic!("the configuration was refused:\n{out}"),
        }
    }

    /// The phases it acts in.
    pub fn phases(&self) -> Phases {
        self.handler.phases()
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.world.clock.advance(by);
    }

    /// What plugins get as the monotonic time.
    pub fn now(&self) -> Instant {
        self.world.clock.now()
    }
}
