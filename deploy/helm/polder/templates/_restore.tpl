{{- /* Withdraws the node's offer from the cluster, once. */ -}}
{{- define "polder.withdraw" -}}
- name: withdraw
  image: {{ include "polder.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/usr/local/bin/report, --withdraw]
  env: {{- include "polder.common-env" . | trim | nindent 2 }}
  {{- with index .Values.report.flags "resource-prefix" }}
  - {name: POLDER_REPORT_RESOURCE_PREFIX, value: {{ include "polder.flag" . | quote }}} # the prefix of the offered resources
  {{- end }}
  securityContext: {{- include "polder.confined" . | trim | nindent 4 }}
    runAsUser: 65532
    runAsGroup: 65532
    runAsNonRoot: true
  resources: {{- toYaml .Values.report.resources | nindent 4 }}
  volumeMounts:
  {{- include "polder.token-mount" . | trim | nindent 2 }}
{{- end }}
{{- /* Restores what isolate changed on the node, once. isolate reads kubelet's state as it does when it runs, because a list of CPUs is
restored without the CPUs that kubelet has assigned exclusively meanwhile. */ -}}
{{- define "polder.restore" -}}
{{- with include "polder.kubelet-reader" . | trim }}
{{ . }}
{{- end }}
- name: restore
  image: {{ include "polder.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/usr/local/bin/isolate, --restore, --if-exists, --journal, /var/lib/polder/isolate.journal]
  env: {{- include "polder.common-env" . | trim | nindent 2 }}
  - {name: POLDER_ISOLATE_KUBELET_ROOT, value: {{ include "polder.kubelet-root" . | quote }}}
  securityContext: {{- include "polder.confined" . | trim | nindent 4 }}
    runAsUser: 0
    runAsGroup: 0
  resources: {{- toYaml .Values.isolate.resources | nindent 4 }}
  volumeMounts:
  - {name: cgroups, mountPath: /sys/fs/cgroup}
  {{- with include "polder.resctrl-mount" (dict "root" .) | trim }}{{ nindent 2 . }}{{ end }}
  {{- with include "polder.kubelet-mount" . | trim }}{{ nindent 2 . }}{{ end }}
  - {name: state, mountPath: /var/lib/polder}
{{- end }}
{{- /* Restores the uplinks, once. */ -}}
{{- define "polder.network-restore" -}}
initContainers:
- name: restore-network
  image: {{ include "polder.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/usr/local/bin/isolate, --only, network, --restore, --if-exists, --journal, /var/lib/polder/network.journal]
  env: {{- include "polder.common-env" . | trim | nindent 2 }}
  securityContext: {{- include "polder.confined-network" . | trim | nindent 4 }}
    runAsUser: 0
    runAsGroup: 0
  resources: {{- toYaml .Values.network.resources | nindent 4 }}
  volumeMounts:
  - {name: state-network, mountPath: /var/lib/polder}
{{ include "polder.done" . | trim }}
volumes:
{{ include "polder.tool-state" (dict "root" . "tool" "network") | trim }}
{{- end }}
{{- /* Waits to be uninstalled. */ -}}
{{- define "polder.done" -}}
containers:
- name: done
  image: {{ include "polder.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/bin/sh, -c, 'echo "restored"; trap exit TERM; while :; do sleep 3600 & wait $!; done']
  securityContext: {{- include "polder.confined" . | trim | nindent 4 }}
    runAsUser: 65532
    runAsGroup: 65532
    runAsNonRoot: true
  resources: {requests: {cpu: 1m, memory: 8Mi}, limits: {memory: 32Mi}}
{{- end }}
{{- define "polder.state-volume" -}}
- name: state
  hostPath: {path: {{ .Values.host.stateDir }}, type: DirectoryOrCreate}
{{- end }}

{{- define "polder.single-restore" -}}
initContainers:
{{ include "polder.withdraw" . | trim }}
{{ include "polder.restore" . | trim }}
{{ include "polder.done" . | trim }}
volumes:
{{ include "polder.cgroups-volumes" . | trim }}
{{- with include "polder.kubelet-volumes" . | trim }}{{ nindent 0 . }}{{ end }}
{{ include "polder.state-volume" . | trim }}
{{ include "polder.token-volume" . | trim }}
{{- end }}

{{- define "polder.report-restore" -}}
initContainers:
{{ include "polder.withdraw" . | trim }}
{{ include "polder.done" . | trim }}
volumes:
{{ include "polder.token-volume" . | trim }}
{{- end }}

{{- define "polder.isolate-restore" -}}
initContainers:
{{ include "polder.restore" . | trim }}
{{ include "polder.done" . | trim }}
volumes:
{{ include "polder.cgroups-volumes" . | trim }}
{{- with include "polder.kubelet-volumes" . | trim }}{{ nindent 0 . }}{{ end }}
{{ include "polder.state-volume" . | trim }}
{{- end }}
