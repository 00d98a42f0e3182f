{{- /* The eviction rules that evict is started with, as a list in JSON. */ -}}
{{- define "polder.rules-in-force" -}}
{{- $rules := include "polder.rules" . | trim }}
{{- if hasKey .Values.evict.flags "rules" }}{{ $rules = include "polder.flag" .Values.evict.flags.rules }}{{ end }}
{{- splitList "," $rules | toJson }}
{{- end }}

{{- /*
Which kinds of rules are in force: those about "reclaimed" pods alone, about "any" class of pod, about "labelled" ones, and about "be" pods
in Koordinator's sense. The kind of a rule that is not here is unknown, and evict would refuse the rule at its start.
*/ -}}
{{- define "polder.rule-kinds" -}}
{{- $kindOf := dict
      "reclaimed-resource-pressure-eviction-plugin" "reclaimed" "service-waiting" "reclaimed" "service-io-waiting" "reclaimed"
      "memory-pressure-eviction-plugin" "any" "cpu-pressure-eviction-plugin" "any" "rss-overuse-eviction-plugin" "any"
      "BEMemoryEvict" "be" "BECPUEvict" "be"
      "MemoryAllocatableEvict" "labelled" "CPUAllocatableEvict" "labelled" "MemoryEvict" "labelled" "CPUEvict" "labelled" }}
{{- $kinds := dict }}
{{- range include "polder.rules-in-force" . | fromJsonArray }}
{{- $rule := trim . }}
{{- if not (hasKey $kindOf $rule) }}{{ fail (printf "evict.flags.rules: no rule %q: want some of %s" $rule (keys $kindOf | sortAlpha | join ", ")) }}{{ end }}
{{- $_ := set $kinds (get $kindOf $rule) true }}
{{- end }}
{{- toJson $kinds }}
{{- end }}

{{- /* What BestEffort pods without a mark are. */ -}}
{{- define "polder.best-effort" -}}
{{- if hasKey .Values.collect.flags "best-effort" }}{{ include "polder.flag" (index .Values.collect.flags "best-effort") }}
{{- else }}{{ ternary "reclaimed" "shared" (eq .Values.policy "koordinator") }}
{{- end }}
{{- end }}

{{- /*
CEL: may evict end the pod (.pod, an expression)? Is it of the token's own node, and of class reclaimed (as lib/qos has it), or one that the
rules in force may end? Static and critical pods never are, nor those
that opt out where that is by the annotation of evict's default. Variables are evaluated when they are needed.
*/ -}}
{{- define "polder.victim-variables" -}}
{{- $kinds := include "polder.rule-kinds" .root | fromJson -}}
- name: node
  expression: request.userInfo.extra[?"authentication.kubernetes.io/node-name"].orValue([""])[0]
- name: ownNode
  expression: variables.node != "" && {{ .pod }}.spec.?nodeName.orValue("") == variables.node
- name: level
  expression: {{ .pod }}.metadata.?annotations[?"katalyst.kubewharf.io/qos_level"]
- name: class
  expression: {{ .pod }}.metadata.?labels[?"koordinator.sh/qosClass"]
- name: batch
  expression: >-
    {{ .pod }}.spec.containers.exists(c, c.?resources.?requests.orValue({}).exists(k, string(k).matches("^(kubernetes[.]io|koordinator[.]sh)/batch-")))
- name: reclaimed
  expression: >-
    variables.level.hasValue() ? variables.level.value() == "reclaimed_cores"
    : variables.class.hasValue() ? variables.class.value() == "BE"
    : variables.batch{{ if eq (include "polder.best-effort" .root | trim) "reclaimed" }} || {{ .pod }}.status.?qosClass.orValue("") == "BestEffort"{{ end }}
- name: byRules
  expression: >-
    {{ if $kinds.any }}true{{ else }}variables.reclaimed
    {{- if $kinds.be }} || variables.batch || variables.level.orValue("") == "reclaimed_cores" || variables.class.orValue("") == "BE"{{ end }}
    {{- if $kinds.labelled }} || {{ .pod }}.metadata.?labels[?"koordinator.sh/eviction-enabled"].orValue("") == "true"{{ end }}
    {{- end }}
- name: mayEnd
  expression: >-
    variables.byRules && {{ .pod }}.spec.?priority.orValue(0) < 2000000000
    && !{{ .pod }}.metadata.?annotations[?"kubernetes.io/config.mirror"].hasValue()
    {{- if not (hasKey .root.Values.evict.flags "opt-out") }}
    && {{ .pod }}.metadata.?annotations[?"polder/evict"].orValue("") != "false"
    {{- end }}
{{- end }}

{{- define "polder.victim-node-message" -}}
variables.node == "" ? "Polder's token names no node: it must be a pod's, or be bound to a node (kubectl create token --bound-object-kind=Node)" : "Polder's token is of node " + variables.node + ": it may not {{ .verb }} pods of " + {{ .pod }}.spec.?nodeName.orValue("no node")
{{- end }}

{{- define "polder.victim-class-message" -}}
{{- $kinds := include "polder.rule-kinds" .root | fromJson -}}
Polder may {{ .verb }} only {{ if $kinds.any }}pods that are neither static nor critical{{ else if $kinds.labelled }}reclaimed pods and those labelled koordinator.sh/eviction-enabled, neither static nor critical ones{{ else }}reclaimed pods, neither static nor critical ones{{ end }}
{{- end }}
