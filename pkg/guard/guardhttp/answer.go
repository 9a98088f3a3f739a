package guardhttp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"tidegate/pkg/fault"
)

// answer is an HTTP answer as a value: a line of JSON with status and header,
// then the body.
type answer struct {
	Status int         `json:"s"`
	Header http.Header `json:"h"`
	body   []byte
}

func (v answer) encode() []byte {
	head, _ := json.Marshal(v) // an int and strings always can be written
	out := make([]byte, 0, len(head)+1+len(v.body))
	out = append(out, head...)
	out = append(out, '\n')
	return append(out, v.body...)
}

func decode(b []byte) (v answer, err error) {
	head, body, found := bytes.Cut(b, []byte{'\n'})
	if !found || json.Unmarshal(head, &v) != nil || v.Status < 200 || v.Status > 599 {
		return v, fault.New(fault.Internal, "guard proxy", "a cached answer cannot be read: is another program using this back end's name?")
	}
	v.body = body
	return v, nil
}

// shareStatus are the answers that hold for everybody.
var shareStatus = []int{http.StatusOK, http.StatusNonAuthoritativeInfo, http.StatusNoContent, http.StatusMultipleChoices,
	http.StatusMovedPermanently, http.StatusPermanentRedirect, http.StatusNotFound, http.StatusGone}

// mayShare reports that neither status nor header forbid that others see the
// answer. Vary needs no look beyond "*": headers that are not in the key were not
// sent on, so everybody gets the variant without them.
func (a asking) mayShare(resp *http.Response) bool {
	h := resp.Header
	if !slices.Contains(shareStatus, resp.StatusCode) || len(h.Values("Set-Cookie")) > 0 || len(resp.Trailer) > 0 {
		return false
	}
	for _, v := range h.Values("Vary") {
		if strings.Contains(v, "*") {
			return false
		}
	}
	for _, line := range h.Values("Cache-Control") {
		for _, d := range strings.Split(line, ",") {
			name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(d)), "=")
			if name == "no-store" || name == "private" && !a.personal {
				return false
			}
		}
	}
	return true
}

// hops are headers of one connection (RFC 9110, 7.6.1), and those that send sets.
var hops = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Age", "X-Guard"}

func dropHops(h http.Header) {
	for _, line := range h.Values("Connection") {
		for _, name := range strings.Split(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hops {
		h.Del(name)
	}
}

func copyHeader(dst, src http.Header) {
	for name, values := range src {
		dst[name] = slices.Clone(values)
	}
}
