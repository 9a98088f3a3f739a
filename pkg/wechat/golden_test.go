package wechat

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

const (
	sampleAccount = "gh_5d1e0a77c3b2"
	sampleOpenID  = "oZx81wQk2Lr7nVb0TtYpSdUeGhA4"
)

// golden is what a sample must be read as.
type golden struct {
	Message    *Message
	Fields     map[string]string
	Identities []Identity
	IsReceipt  bool
	MayAnswer  bool
	Receipts   []ReceiptItem `json:",omitempty"`
	Scene      *string       `json:",omitempty"`
	ScanCode   *ScanCode     `json:",omitempty"`
	Pictures   *Pictures     `json:",omitempty"`
	Place      *Place        `json:",omitempty"`
	Choices    []Choice      `json:",omitempty"`
	Mass       *MassResult   `json:",omitempty"`
}

func goldenOf(m *Message) golden {
	g := golden{
		Message:    m,
		Fields:     m.Fields(),
		Identities: m.Identities("bank"),
		IsReceipt:  m.IsReceipt(),
		MayAnswer:  m.MayAnswer(),
		Receipts:   m.Receipts(),
		Choices:    m.Choices(),
	}
	if v, ok := m.Scene(); ok {
		g.Scene = &v
	}
	if v, ok := m.ScanCode(); ok {
		g.ScanCode = &v
	}
	if v, ok := m.Pictures(); ok {
		g.Pictures = &v
	}
	if v, ok := m.Place(); ok {
		g.Place = &v
	}
	if v, ok := m.MassResult(); ok {
		g.Mass = &v
	}
	return g
}

// samplePlain gives the message document of a sample; whole envelopes go
// through the Verifier with the query string that belongs to them.
func samplePlain(t testing.TB, name string, body []byte) []byte {
	t.Helper()
	if !strings.HasPrefix(name, "envelope-") {
		return body
	}
	q, err := ParseQuery(sampleQuery(t, name))
	require.NoError(t, err)
	require.Equal(t, sampleOpenID, q.OpenID)
	mode := ModeSafe
	if strings.Contains(name, "compat") {
		mode = ModeCompatible
	}
	v, err := NewVerifier(sampleCredentials(mode))
	require.NoError(t, err)
	opened, err := v.Open(q, body)
	require.NoError(t, err)
	return opened.Plain
}

func sampleCredentials(mode Mode) Credentials {
	return Credentials{
		AppID:          ourAppID,
		Token:          "gw-demo-token-2031",
		EncodingAESKey: "Qm7rT0xkV3sZ9bYh2LdNcP5wEaGfJu8oXiKyRzMt4Bq",
		Mode:           mode,
	}
}

func sampleQuery(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/callback/request-lines.json")
	require.NoError(t, err)
	var lines map[string]string
	require.NoError(t, json.Unmarshal(raw, &lines))
	_, query, ok := strings.Cut(lines[name], "?")
	require.True(t, ok, name)
	return query
}

func callbackSamples(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/callback/*.xml")
	require.NoError(t, err)
	require.Len(t, files, 58, "59 samples: these and request-lines.json")
	samples := make(map[string][]byte, len(files))
	for _, f := range files {
		body, err := os.ReadFile(f)
		require.NoError(t, err)
		samples[strings.TrimSuffix(filepath.Base(f), ".xml")] = body
	}
	return samples
}

func TestCallbackSamples(t *testing.T) {
	for name, body := range callbackSamples(t) {
		t.Run(name, func(t *testing.T) {
			m, err := ParseMessage(samplePlain(t, name+".xml", body), sampleOpenID)
			require.NoError(t, err)
			require.False(t, m.Quarantined, m.Reason)
			compareGolden(t, "testdata/golden/"+name+".json", goldenOf(m))
		})
	}
}

func compareGolden(t *testing.T, path string, v any) {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	require.NoError(t, e.Encode(v))
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update and read the new file")
	require.Equal(t, string(want), b.String())
}

// The two lines of request-lines.json that belong to no sample file.
func TestRequestLines(t *testing.T) {
	v, err := NewVerifier(sampleCredentials(ModeSafe))
	require.NoError(t, err)
	q, err := ParseQuery(sampleQuery(t, "get-verify"))
	require.NoError(t, err)
	echo, err := v.CheckURL(q)
	require.NoError(t, err)
	require.Equal(t, "7240183956217740158", echo)

	q, err = ParseQuery(sampleQuery(t, "plaintext example"))
	require.NoError(t, err)
	body := []byte("<xml><MsgType>text</MsgType></xml>")
	_, err = v.Open(q, body)
	requireRefusal(t, err, ReasonMode)

	v, err = NewVerifier(sampleCredentials(ModePlain))
	require.NoError(t, err)
	opened, err := v.Open(q, body)
	require.NoError(t, err)
	require.Equal(t, body, opened.Plain)
	require.False(t, opened.Encrypted)
}
