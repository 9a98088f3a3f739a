package app

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"tidegate/pkg/telemetry"
)

// NewOpsKey makes a key of the operations listener and prints it with what the
// configuration needs. Nothing else keeps it.
func NewOpsKey(name string, scopes []string, out io.Writer) error {
	text, hash := telemetry.NewOpsKey()
	if err := telemetry.ValidateOpsKeys([]telemetry.OpsKey{{Name: name, SHA256: hash, Scopes: scopes}}); err != nil {
		return usage(err)
	}
	_, err := fmt.Fprintf(out, `The key of %[1]s, shown this once:

  %[2]s

Send it as "Authorization: Bearer %.4[2]s…"; Prometheus reads it from a file:
authorization: {credentials_file: /etc/prometheus/tidegate-key}

The roles know it by its hash. Add to the configuration of each:

ops:
  keys:
    - name: %[1]s
      sha256: %[3]s
      scopes: [%[4]s]
`, name, text, hash, strings.Join(scopes, ", "))
	return err
}

// changeKeys takes changed keys while the role runs, so that a lost key can be
// taken out at once. Opening the listener is no such change: the address that
// was checked with it may be a new one, and this listener has the old.
func changeKeys(ops *telemetry.Ops, began, now OpsConfig) error {
	if len(now.Keys) == 0 && len(began.Keys) > 0 {
		return errors.New("ops.keys: taking out the last key takes a restart")
	}
	return ops.SetKeys(now.Keys)
}
