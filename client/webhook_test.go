package client_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/client"
)

// The values of the specification's own example; the signature of the second
// key was computed with Python's hmac.
const (
	specSecret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	otherSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	specID      = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	specStamp   = "1614265330"
	specBody    = `{"test": 2432232314}`
	specSum     = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	otherSum    = "v1,ASIUAiaHOkbADwG8wp+azpVk6vxhRLG/tiLJdqO+U0U="
)

func specHeader(sums string) http.Header {
	h := http.Header{}
	h.Set("webhook-id", specID)
	h.Set("webhook-timestamp", specStamp)
	h.Set("webhook-signature", sums)
	return h
}

// S48: receivers can verify, with either secret while they are exchanged.
func TestS48VerifyWebhook(t *testing.T) {
	now := time.Unix(1614265330, 0)
	verify := func(secret, sums, body string, at time.Time) error {
		_, err := client.VerifyWebhook([]string{secret}, specHeader(sums), []byte(body), at)
		return err
	}
	require.NoError(t, verify(specSecret, specSum, specBody, now))
	require.NoError(t, verify(otherSecret, otherSum, specBody, now))
	for _, secret := range []string{specSecret, otherSecret} {
		require.NoError(t, verify(secret, otherSum+" "+specSum, specBody, now), "the first or the second")
	}
	e, err := client.VerifyWebhook([]string{otherSecret, specSecret}, specHeader(specSum), []byte(specBody), now)
	require.NoError(t, err)
	require.Equal(t, specID, e.ID)

	refused := map[string]error{
		"another secret": verify(otherSecret, specSum, specBody, now),
		"another body":   verify(specSecret, specSum, specBody+" ", now),
		"too old":        verify(specSecret, specSum, specBody, now.Add(client.WebhookTolerance+time.Second)),
		"from later":     verify(specSecret, specSum, specBody, now.Add(-client.WebhookTolerance-time.Second)),
		"version":        verify(specSecret, "v2"+specSum[2:], specBody, now),
		"not base64":     verify(specSecret, "v1,%%%", specBody, now),
		"empty":          verify(specSecret, "v1,", specBody, now),
	}
	for name, err := range refused {
		require.ErrorIs(t, err, client.ErrWebhook, name)
		require.NotContains(t, err.Error(), specSecret[6:])
	}
	for _, missing := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
		h := specHeader(specSum)
		h.Del(missing)
		_, err := client.VerifyWebhook([]string{specSecret}, h, []byte(specBody), now)
		require.ErrorIs(t, err, client.ErrWebhook, missing)
	}
	_, err = client.VerifyWebhook(nil, specHeader(specSum), []byte(specBody), now)
	require.Error(t, err, "no secret is not every secret")
	_, err = client.VerifyWebhook([]string{"whsec_"}, specHeader(specSum), []byte(specBody), now)
	require.Error(t, err, "an empty key signs for everybody")
}
