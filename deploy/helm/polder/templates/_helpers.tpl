{{- define "polder.name" -}}
{{- if contains "polder" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-polder" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "polder.labels" -}}
app.kubernetes.io/name: polder
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "polder.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Whether the admission policies are rendered. */ -}}
{{- define "polder.policies" -}}
{{- if or (eq .Values.admissionPolicy "always") (and (eq .Values.admissionPolicy "auto") (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")) }}true{{ end }}
{{- end }}

{{- /* Where report reports to, with commas. */ -}}
{{- define "polder.targets" -}}
{{- join "," (.Values.report.to | default (ternary (list "node" "nodemetric") (list "cnr" "node") (eq .Values.policy "koordinator"))) }}
{{- end }}

{{- /* The eviction rules of the policy. */ -}}
{{- define "polder.rules" -}}
{{- if eq .Values.policy "koordinator" }}BEMemoryEvict,BECPUEvict,MemoryAllocatableEvict,CPUAllocatableEvict,MemoryEvict,CPUEvict{{ else }}reclaimed-resource-pressure-eviction-plugin{{ end }}
{{- end }}

{{- /* The scheduler's profile, which is also the name of its file and lease. */ -}}
{{- define "polder.profile" -}}
{{ ternary "koord-scheduler" "katalyst-scheduler" (eq .Values.policy "koordinator") }}
{{- end }}

{{- /* Who has the role of a tool: "namespace:account" for each. */ -}}
{{- define "polder.subjects" -}}
- {kind: ServiceAccount, name: {{ include "polder.name" .root }}, namespace: {{ .root.Release.Namespace }}}
{{- if .root.Values.serviceAccount.perTool }}
- {kind: ServiceAccount, name: {{ include "polder.name" .root }}-{{ .tool }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}
{{- end }}

{{- /* The settings of one tool (.tool) as environment variables: what the chart says, then its flags. */ -}}
{{- define "polder.env" -}}
{{- $v := .root.Values }}
{{- $env := dict }}
{{- if has .tool (list "collect" "isolate") }}
{{- $_ := set $env "kubelet-root" $v.host.kubeletDir }}
{{- end }}
{{- if eq .tool "collect" }}
{{- $_ := set $env "in-cluster" "true" }}
{{- if eq $v.policy "koordinator" }}
{{- $_ := set $env "slo-config" (printf "%s/%s" $v.koordinator.sloConfig.namespace $v.koordinator.sloConfig.name) }}
{{- $_ := set $env "best-effort" "reclaimed" }}
{{- end }}
{{- else if eq .tool "advise" }}
{{- if ne $v.policy "katalyst" }}{{ $_ := set $env "policy" $v.policy }}{{ end }}
{{- else if eq .tool "evict" }}
{{- $_ := set $env "action" $v.evict.action }}
{{- $_ := set $env "rules" (include "polder.rules" .root | trim) }}
{{- else if eq .tool "report" }}
{{- $to := include "polder.targets" .root }}
{{- $_ := set $env "to" $to }}
{{- $_ := set $env "output" (ternary "-" "/dev/null" (has "table" (splitList "," $to))) }}
{{- if $v.report.taintNode }}
{{- $_ := set $env "taint-node" "true" }}
{{- end }}
{{- end }}
{{- if $v.metrics.enabled }}
{{- $_ := set $env "metrics-addr" (printf ":%v" (index $v.metrics.ports .tool)) }}
{{- end }}
{{- if and $v.dryRun (has .tool (list "isolate" "evict" "report")) }}
{{- $_ := set $env "dry-run" "true" }}
{{- if eq .tool "report" }}
{{- $_ := set $env "to" "table" }}
{{- $_ := set $env "output" "-" }}
{{- $_ := unset $env "taint-node" }}
{{- end }}
{{- end }}
{{- $env = merge (dict) (index $v .tool).flags $env }}
{{- range $flag, $value := $env }}
{{- if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ $value = int64 $value }}{{ end }}{{ end }}
- {name: {{ printf "POLDER_%s_%s" $.tool $flag | replace "-" "_" | upper }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{- /* The ports on which the tools (.tools) answer Prometheus. */ -}}
{{- define "polder.metrics-ports" -}}
{{- $m := .root.Values.metrics }}
{{- if $m.enabled }}
ports:
{{- range .tools }}
- {name: {{ . }}-metrics, containerPort: {{ index $m.ports . }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "polder.common-env" -}}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: GOTRACEBACK, value: crash}
{{- range .Values.env }}
- {{ toJson . }}
{{- end }}
{{- end }}

{{- /* What no container of the node's pod needs. Roots without capabilities: they own the files that they open, no more. */ -}}
{{- define "polder.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities: {drop: [ALL]}
{{- end }}

{{- define "polder.token-mount" -}}
- {name: api, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- /* The host's cgroups for reading. On version 1 every hierarchy is a mount of its own, so read-only must go all the way down. */ -}}
{{- define "polder.cgroups-read-only" -}}
- name: cgroups
  mountPath: /sys/fs/cgroup
  readOnly: true
  {{- if semverCompare ">=1.31.0-0" .Capabilities.KubeVersion.Version }}
  recursiveReadOnly: IfPossible
  {{- end }}
{{- end }}

{{- /* Cache ways and memory bandwidth: a mount of its own below sysfs. */ -}}
{{- define "polder.resctrl-mount" -}}
{{- if .root.Values.host.resctrl }}
- {name: resctrl, mountPath: /sys/fs/resctrl{{ if .readOnly }}, readOnly: true{{ end }}}
{{- end }}
{{- end }}

{{- define "polder.kubelet-mount" -}}
{{- if .Values.host.kubeletState }}
# With the host's unmounts: a volume that stayed mounted here could not be detached from the node.
- {name: kubelet, mountPath: {{ .Values.host.kubeletDir }}, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- end }}
