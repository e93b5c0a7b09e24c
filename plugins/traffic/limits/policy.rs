//! Where limits count.

use lockgate_plugin::Problems;
use schemars::JsonSchema;
use serde::Deserialize;

/// Where limits count.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Policy {
    // In this gateway's memory.
    #[default]
    Local,
    // In a Redis server.
    Redis,
    // In a Redis cluster.
    RedisCluster,
    // In a Redis server that Sentinels know.
    RedisSentinel,
}

impl Policy {
    /// Refuses what is not served: a limit that is not enforced where it was meant to be is worse
    /// than none.
    pub(crate) fn check(self, out: &mut Problems) {
        let name = match self {
            Policy::Local => return,
            Policy::Redis => "redis",
            Policy::RedisCluster => "redis-cluster",
            Policy::RedisSentinel => "redis-sentinel",
        };
        out.add(
            "policy",
            format!(
                "`{name}` is not served yet: limits count in this gateway's memory, policy `local`"
            ),
        );
    }
}
