{{- /* The eviction rules that evict is started with, as a list in JSON. */ -}}
{{- define "polder.rules-in-force" -}}
{{- $rules := include "polder.rules" . | trim }}
{{- if hasKey .Values.evict.flags "rules" }}{{ $rules = include "polder.flag" .Values.evict.flags.rules }}{{ end }}
{{- splitList "," $rules | toJson }}
{{- end }}

{{- /*
The kinds of the rules in force: rules that evict only "reclaimed" pods, pods of "any" class, "labelled" pods, and "be" pods in
Koordinator's sense. A rule without a kind here is unknown, and evict would refuse it at its start.
*/ -}}
{{- define "polder.rule-kinds" -}}
{{- $kindOf := dict
      "reclaimed-resource-pressure-eviction-plugin" "reclaimed" "service-waiting" "reclaimed" "service-io-waiting" "reclaimed"
      "service-memory-waiting" "reclaimed"
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

{{- /* The annotations by which pods opt out of eviction, from evict's flags, as a list in JSON: KEY=VALUE, or KEY for any value. */ -}}
{{- define "polder.opt-out" -}}
{{- $annotations := list }}
{{- range splitList "," (hasKey . "opt-out" | ternary (include "polder.flag" (index . "opt-out")) "polder/evict=false") }}
{{- with trim . }}{{ $annotations = append $annotations . }}{{ end }}
{{- end }}
{{- toJson $annotations }}
{{- end }}

{{- /*
Which pods an evict may evict, in JSON: only those of the node in its token (ownNode), by which kinds of rules (kinds), the class of
BestEffort pods without a class label or annotation (bestEffort), and the annotations by which pods opt out (optOut). Messages call it
who. This is the evict of the agents.
*/ -}}
{{- define "polder.agent-victims" -}}
{{- $bestEffort := ternary "reclaimed" "shared" (eq .Values.policy "koordinator") }}
{{- if hasKey .Values.collect.flags "best-effort" }}{{ $bestEffort = include "polder.flag" (index .Values.collect.flags "best-effort") }}{{ end }}
{{- dict "who" "Polder" "ownNode" true "kinds" (include "polder.rule-kinds" . | fromJson) "bestEffort" $bestEffort
      "optOut" (include "polder.opt-out" .Values.evict.flags | fromJsonArray) | toJson }}
{{- end }}

{{- /* The same of the fleet controller: pods of any node, and only reclaimed ones, because it has no other rule. */ -}}
{{- define "polder.fleet-victims" -}}
{{- $flags := .Values.centre.collect.flags }}
{{- $bestEffort := hasKey $flags "best-effort" | ternary (include "polder.flag" (index $flags "best-effort")) "shared" }}
{{- dict "who" "the fleet controller" "ownNode" false "kinds" (dict "reclaimed" true) "bestEffort" $bestEffort
      "optOut" (include "polder.opt-out" .Values.centre.evict.flags | fromJsonArray) | toJson }}
{{- end }}

{{- /*
CEL variables that decide whether evict may evict a pod (.pod, an expression) by .victims: it is of class reclaimed (by the same rules as
in lib/qos), or the rules in force may evict it. Static and critical pods, and those that opt out, are never evicted. CEL evaluates a
variable only when it is needed.
*/ -}}
{{- define "polder.victim-variables" -}}
{{- $kinds := .victims.kinds -}}
{{- if .victims.ownNode -}}
- name: node
  expression: request.userInfo.extra[?"authentication.kubernetes.io/node-name"].orValue([""])[0]
- name: ownNode
  expression: variables.node != "" && {{ .pod }}.spec.?nodeName.orValue("") == variables.node
{{ end -}}
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
    : variables.batch{{ if eq .victims.bestEffort "reclaimed" }} || {{ .pod }}.status.?qosClass.orValue("") == "BestEffort"{{ end }}
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
    {{- range .victims.optOut }}
    {{- $annotation := splitn "=" 2 . }}
    {{- $value := printf "%s.metadata.?annotations[?%s]" $.pod (toJson $annotation._0) }}
    && {{ if contains "=" . }}{{ $value }} != optional.of({{ toJson $annotation._1 }}){{ else }}!{{ $value }}.hasValue(){{ end }}
    {{- end }}
{{- end }}

{{- /* The validations of such a policy. They allow everything if the expression .unless is true; .verb is what evict does with the pod. */ -}}
{{- define "polder.victim-validations" -}}
{{- $kinds := .victims.kinds -}}
{{- $allowed := "reclaimed pods, neither static nor critical ones" -}}
{{- if $kinds.any -}}
{{- $allowed = "pods that are neither static nor critical" -}}
{{- else if $kinds.labelled -}}
{{- $allowed = "reclaimed pods and those labelled koordinator.sh/eviction-enabled, neither static nor critical ones" -}}
{{- end -}}
{{- if .victims.ownNode -}}
- expression: {{ with .unless }}{{ printf "%s || variables.ownNode" . | toJson }}{{ else }}variables.ownNode{{ end }}
  messageExpression: {{ printf `variables.node == "" ? "Polder's token names no node: it must be a pod's, or be bound to a node (kubectl create token --bound-object-kind=Node)" : "Polder's token is of node " + variables.node + ": it may not %s pods of " + %s.spec.?nodeName.orValue("no node")` .verb .pod | toJson }}
  reason: Forbidden
{{ end -}}
- expression: {{ with .unless }}{{ printf "%s || variables.mayEnd" . | toJson }}{{ else }}variables.mayEnd{{ end }}
  message: {{ printf "%s may %s only %s" .victims.who .verb $allowed | toJson }}
  reason: Forbidden
{{- end }}

{{- /* The policies for what evict (.users) may evict, and for .action delete also delete: .name-evictions and .name-pods. */ -}}
{{- define "polder.victim-policies" -}}
{{- if ne .action "log" }}
---
# An eviction request contains only the pod's name, not the pod. The policy therefore has the pods of the request's namespace as
# parameters: the API server evaluates it once with each of them, and it checks the one that has the name.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}-evictions
  labels: {{- include "polder.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: Pod}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/eviction]}
  matchConditions:
  - name: polder
    expression: request.userInfo.username in {{ .users }}
  variables:
  - {name: concerned, expression: params.metadata.name == request.name}
  {{- include "polder.victim-variables" (dict "victims" .victims "pod" "params") | nindent 2 }}
  validations:
  {{- include "polder.victim-validations" (dict "victims" .victims "pod" "params" "verb" "evict" "unless" "!variables.concerned") | nindent 2 }}
{{- end }}
{{- if eq .action "delete" }}
---
# Only what the action delete needs: the same rules for pods that are deleted.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}-pods
  labels: {{- include "polder.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}
  matchConditions:
  - name: polder
    expression: request.userInfo.username in {{ .users }}
  variables:
  {{- include "polder.victim-variables" (dict "victims" .victims "pod" "oldObject") | nindent 2 }}
  validations:
  {{- include "polder.victim-validations" (dict "victims" .victims "pod" "oldObject" "verb" "delete" "unless" "") | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The binding that puts the policy .name in force. With .byParams it is evaluated with each pod of the request's namespace. */ -}}
{{- define "polder.policy-binding" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "polder.labels" .root | nindent 4 }}
{{- if .byParams }}
# A namespace without pods has none that the request could be about, so it is allowed.
spec: {policyName: {{ .name }}, validationActions: [Deny], paramRef: {selector: {}, parameterNotFoundAction: Allow}}
{{- else }}
spec: {policyName: {{ .name }}, validationActions: [Deny]}
{{- end }}
{{- end }}
