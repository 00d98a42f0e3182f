{{- /* One container: s6 runs the five tools (deploy/s6). It has what any of them needs. */ -}}
{{- define "polder.single" -}}
{{- with include "polder.kubelet-reader" . | trim }}
initContainers:
{{ . }}
{{- end }}
containers:
- name: polder
  image: {{ include "polder.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  env:
  {{- include "polder.common-env" . | trim | nindent 2 }}
  {{- range list "collect" "advise" "isolate" "evict" "report" }}
  {{- with include "polder.env" (dict "root" $ "tool" .) | trim }}{{ nindent 2 . }}{{ end }}
  {{- end }}
  securityContext:
    {{- include "polder.confined" . | trim | nindent 4 }}
    # Root owns the files of cgroups, and needs no capability to write them.
    runAsUser: 0
    runAsGroup: 0
  readinessProbe:
    exec: {command: [/usr/local/lib/polder/s6/alive, {{ .Values.heartbeat.readySeconds | quote }}]}
    periodSeconds: {{ .Values.heartbeat.periodSeconds }}
    timeoutSeconds: 10
  # s6 restarts a tool that ends; this probe is for a tool that hangs. It begins late, so that report can withdraw the offer (after 3
  # minutes, its --stale-after) even if a tool hangs after every start.
  livenessProbe:
    exec: {command: [/usr/local/lib/polder/s6/alive, {{ .Values.heartbeat.restartSeconds | quote }}]}
    initialDelaySeconds: 300
    periodSeconds: {{ .Values.heartbeat.periodSeconds }}
    timeoutSeconds: 10
  {{- with include "polder.metrics-ports" (dict "root" . "tools" (list "collect" "advise" "isolate" "evict" "report")) | trim }}{{ nindent 2 . }}{{ end }}
  resources: {{- toYaml .Values.resources | nindent 4 }}
  volumeMounts:
  - {name: cgroups, mountPath: /sys/fs/cgroup}
  {{- with include "polder.resctrl-mount" (dict "root" .) | trim }}{{ nindent 2 . }}{{ end }}
  - {name: state, mountPath: /var/lib/polder}
  {{- with include "polder.kubelet-mount" . | trim }}{{ nindent 2 . }}{{ end }}
  - {name: run, mountPath: /run/polder}
  - {name: report, mountPath: /run/polder-report}
  {{- include "polder.token-mount" . | trim | nindent 2 }}
volumes:
{{- include "polder.cgroups-volumes" . | trim | nindent 0 }}
{{- include "polder.state-volume" . | trim | nindent 0 }}
{{- with include "polder.kubelet-volumes" . | trim }}{{ nindent 0 . }}{{ end }}
{{- include "polder.token-volume" . | trim | nindent 0 }}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: report
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- end }}
