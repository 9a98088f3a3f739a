package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// S85: a role that starts with secrets that everybody can read says so.
func TestS85ReadableSecretsAreSaidAtTheStart(t *testing.T) {
	if os.PathSeparator != '/' {
		return // there, the mode of a file says nothing
	}
	dir := t.TempDir()
	token, file := filepath.Join(dir, "token"), filepath.Join(dir, "tidegate.yaml")
	require.NoError(t, os.WriteFile(token, []byte("t"), 0o600))
	require.NoError(t, os.WriteFile(file, []byte("accounts: [{token: \"file:"+token+"\"}]\nredis: {password: \"env:X\"}\n"), 0o600))
	warnings := func() int {
		core, logs := observer.New(zap.WarnLevel)
		warnOfReadableSecrets(file, zap.New(core))
		return logs.Len()
	}
	require.NoError(t, os.Chmod(file, 0o644))
	require.Zero(t, warnings(), "there is no secret in the file itself")
	require.NoError(t, os.Chmod(token, 0o644))
	require.Equal(t, 1, warnings())
	// A secret may be a map, such as the headers of a webhook.
	require.NoError(t, os.Chmod(token, 0o600))
	require.NoError(t, os.WriteFile(file, []byte("alarms: {webhooks: [{headers: {X-Key: \"file:"+token+"\"}}]}\n"), 0o600))
	require.Zero(t, warnings())
	require.NoError(t, os.Chmod(token, 0o644))
	require.Equal(t, 1, warnings(), "the file of a header")
	require.NoError(t, os.WriteFile(file, []byte("alarms: {webhooks: [{headers: {X-Key: hush}}]}\n"), 0o600))
	require.Equal(t, 1, warnings(), "a header in the file itself")
}
