//go:build bench

package main

import (
	"encoding/hex"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidegate/pkg/wechat"
)

const (
	appID  = "wx9f3c7b21d08e4a56" // of account safe; those of account plain end in p
	ghID   = "gh_5d1e0a77c3b2"
	token  = "bench-token-2031"
	aesKey = "Qm7rT0xkV3sZ9bYh2LdNcP5wEaGfJu8oXiKyRzMt4Bq"

	// bodyBytes is the size of the message before encryption.
	bodyBytes = 600
	// users send the messages in turn.
	users = 10_000
)

// receivers are the accounts' original ids by mode.
var receivers = map[string]string{"safe": ghID, "plain": ghID + "p"}

// writer makes finished requests; ids are fresh over the whole run, since the
// door would answer a repeat without publishing it.
type writer struct {
	key  []byte
	next uint64
}

func newWriter() (*writer, error) {
	key, err := wechat.DecodeAESKey(aesKey)
	return &writer{key: key, next: uint64(time.Now().UnixNano())}, err
}

// write makes n requests before the clock starts, so that the generator costs
// the server that is measured as little as it can. It uses every core.
func (w *writer) write(mode string, n int) ([][]byte, error) {
	out := make([][]byte, n)
	first := w.next
	w.next += uint64(n)
	parts := runtime.GOMAXPROCS(0)
	errs := make([]error, parts)
	var wg sync.WaitGroup
	for p := range parts {
		wg.Go(func() {
			for i := p; i < n; i += parts {
				if out[i], errs[p] = w.request(mode, first+uint64(i)); errs[p] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (w *writer) request(mode string, id uint64) ([]byte, error) {
	openid := fmt.Sprintf("oBench%022d", id%users)
	ts, nonce := strconv.FormatInt(time.Now().Unix(), 10), strconv.FormatUint(id, 36)
	query := "signature=" + wechat.Signature(token, ts, nonce) + "&timestamp=" + ts + "&nonce=" + nonce + "&openid=" + openid
	body := message(receivers[mode], openid, id)
	if mode == "safe" {
		random := hex.EncodeToString(fmt.Appendf(nil, "%08d", id%1e8))
		sealed, err := wechat.Encrypt(w.key, appID, []byte(random), []byte(body))
		if err != nil {
			return nil, err
		}
		query += "&encrypt_type=aes&msg_signature=" + wechat.Signature(token, ts, nonce, sealed)
		body = "<xml><ToUserName><![CDATA[" + ghID + "]]></ToUserName><Encrypt><![CDATA[" + sealed + "]]></Encrypt></xml>"
	}
	return []byte("POST /wx/" + mode + "?" + query + " HTTP/1.1\r\nHost: bench\r\nUser-Agent: Mozilla/4.0\r\nContent-Type: text/xml\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n" + body), nil
}

// message is a text message of exactly bodyBytes.
func message(receiver, openid string, id uint64) string {
	head := fmt.Sprintf("<xml><ToUserName><![CDATA[%s]]></ToUserName><FromUserName><![CDATA[%s]]></FromUserName><CreateTime>%d</CreateTime><MsgType><![CDATA[text]]></MsgType><Content><![CDATA[",
		receiver, openid, time.Now().Unix())
	tail := fmt.Sprintf("]]></Content><MsgId>%d</MsgId></xml>", id)
	return head + strings.Repeat("where is my parcel? ", bodyBytes/20)[:bodyBytes-len(head)-len(tail)] + tail
}
