package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
)

// The acknowledgement on the wire: WeChat compares the body byte for byte, and
// a length spares it the chunks.
func TestAcknowledgementOnTheWire(t *testing.T) {
	w := newWorld(t, wechat.ModeSafe, nil)
	r := w.request(text(1, "hello"), openid)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+w.p.Addr()+r.URL.RequestURI(), strings.NewReader(readAll(t, r.Body)))
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "text/plain; charset=utf-8", res.Header.Get("Content-Type"))
	require.EqualValues(t, len("success"), res.ContentLength)
	require.Equal(t, "success", readAll(t, res.Body))
	require.Len(t, w.q.callbacks(t), 1, "it was durable before")
}
