//! Which plugins there are, and which of them may be used.

use lockgate_plugin::PluginDef;
use lockgate_plugin::schema::closest;
use serde_json::Value;

use super::decode::split_meta;

/// The plugins of this process.
pub struct Catalogue {
    all: &'static [PluginDef],
    /// The `plugins` list of the settings.
    enabled: Vec<String>,
    skips_unknown: bool,
}

/// What a plugin name means.
pub enum Found {
    /// A plugin that may run.
    Ready(&'static PluginDef),
    /// A plugin that the `plugins` list leaves out.
    NotEnabled,
    /// A plugin of APISIX that this version does not have.
    NotAvailable,
    /// No plugin at all, and the closest name.
    Unknown(Option<&'static str>),
}

impl Catalogue {
    /// A catalogue of plugins, of which `enabled` may be used.
    pub fn new(all: &'static [PluginDef], enabled: Vec<String>) -> Catalogue {
        Catalogue {
            all,
            enabled,
            skips_unknown: false,
        }
    }

    /// Has resources taken without their plugins that are none, as APISIX does with what it finds
    /// in etcd: the plugin may be one of another gateway's own.
    #[must_use]
    pub fn skipping_unknown(self) -> Catalogue {
        Catalogue {
            skips_unknown: true,
            ..self
        }
    }

    /// Whether a resource is taken without a plugin that is none.
    pub fn skips_unknown(&self) -> bool {
        self.skips_unknown
    }

    /// All plugins, all enabled.
    pub fn everything(all: &'static [PluginDef]) -> Catalogue {
        Catalogue::new(all, all.iter().map(|def| def.name.to_owned()).collect())
    }

    /// Looks a name up.
    pub fn find(&self, name: &str) -> Found {
        match self.all.iter().find(|def| def.name == name) {
            Some(def) if self.enabled.iter().any(|enabled| enabled == name) => Found::Ready(def),
            Some(_) => Found::NotEnabled,
            None if APISIX.contains(&name) => Found::NotAvailable,
            None => {
                let names = self.names().chain(APISIX.iter().copied());
                Found::Unknown(closest(name, names))
            }
        }
    }

    /// What a consumer or credential is recognised by: plugin, attribute, value.
    pub fn presented(&self, value: &Value) -> Vec<(&'static str, &'static str, String)> {
        let plugins = value.get("plugins").and_then(Value::as_object);
        let mut out = Vec::new();
        for (name, conf) in plugins.into_iter().flatten() {
            let Found::Ready(def) = self.find(name) else {
                continue;
            };
            let Some(credential) = def.credential else {
                continue;
            };
            let plain = split_meta(conf).map(|(plain, _)| plain);
            if let Ok((key, _)) = plain.and_then(|plain| (credential.parse)(&plain)) {
                out.push((def.name, credential.attribute, key));
            }
        }
        out
    }

    /// The plugins that may be used.
    pub fn ready(&self) -> impl Iterator<Item = &'static PluginDef> {
        let enabled = |def: &&PluginDef| self.enabled.iter().any(|name| name == def.name);
        self.all.iter().filter(enabled)
    }

    /// The names of all plugins.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.all.iter().map(|def| def.name)
    }
}

/// The HTTP plugins of APISIX 3.18, to tell a plugin that is missing here from a misspelt one.
pub const APISIX: &[&str] = &[
    "real-ip",
    "exit-transformer",
    "ai",
    "client-control",
    "proxy-buffering",
    "proxy-control",
    "request-id",
    "zipkin",
    "skywalking",
    "opentelemetry",
    "ext-plugin-pre-req",
    "fault-injection",
    "mocking",
    "serverless-pre-function",
    "batch-requests",
    "cors",
    "ip-restriction",
    "ua-restriction",
    "referer-restriction",
    "csrf",
    "uri-blocker",
    "request-validation",
    "chaitin-waf",
    "multi-auth",
    "openid-connect",
    "saml-auth",
    "cas-auth",
    "authz-casbin",
    "authz-casdoor",
    "wolf-rbac",
    "ldap-auth-advanced",
    "ldap-auth",
    "hmac-auth",
    "basic-auth",
    "jwt-auth",
    "jwe-decrypt",
    "key-auth",
    "dingtalk-auth",
    "feishu-auth",
    "acl",
    "consumer-restriction",
    "attach-consumer-label",
    "forward-auth",
    "opa",
    "authz-keycloak",
    "data-mask",
    "error-log-logger",
    "proxy-cache",
    "body-transformer",
    "ai-request-rewrite",
    "ai-prompt-guard",
    "ai-prompt-template",
    "ai-prompt-decorator",
    "ai-rag",
    "ai-proxy-multi",
    "ai-proxy",
    "ai-cache",
    "ai-aws-content-moderation",
    "ai-rate-limiting",
    "ai-aliyun-content-moderation",
    "ai-lakera-guard",
    "proxy-mirror",
    "graphql-proxy-cache",
    "proxy-rewrite",
    "workflow",
    "api-breaker",
    "graphql-limit-count",
    "limit-conn",
    "limit-count",
    "limit-req",
    "node-status",
    "brotli",
    "gzip",
    "server-info",
    "traffic-label",
    "traffic-split",
    "redirect",
    "response-rewrite",
    "oas-validator",
    "mcp-bridge",
    "degraphql",
    "kafka-proxy",
    "dubbo-proxy",
    "grpc-transcode",
    "grpc-web",
    "http-dubbo",
    "public-api",
    "prometheus",
    "datadog",
    "error-page",
    "lago",
    "loki-logger",
    "elasticsearch-logger",
    "echo",
    "loggly",
    "http-logger",
    "splunk-hec-logging",
    "skywalking-logger",
    "google-cloud-logging",
    "sls-logger",
    "tcp-logger",
    "kafka-logger",
    "rocketmq-logger",
    "syslog",
    "udp-logger",
    "file-logger",
    "clickhouse-logger",
    "tencent-cloud-cls",
    "inspect",
    "log-rotate",
    "example-plugin",
    "gm",
    "ocsp-stapling",
    "aws-lambda",
    "azure-functions",
    "openwhisk",
    "openfunction",
    "serverless-post-function",
    "ext-plugin-post-req",
    "ext-plugin-post-resp",
];
