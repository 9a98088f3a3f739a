// Command gate lets the SDK check use pkg/wechat as a server would. Each line of
// input is a request in JSON, each line of output its answer.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"tidegate/pkg/wechat"
)

// request is a callback as it came over HTTP: the credentials of its account,
// the raw query, and the body, or none for the check of the address. A reply is
// sealed as the passive answer.
type request struct {
	AppID          string      `json:"app_id"`
	Token          string      `json:"token"`
	EncodingAESKey string      `json:"encoding_aes_key"`
	Mode           wechat.Mode `json:"mode"`
	Query          string      `json:"query"`
	Body           string      `json:"body"`
	Reply          string      `json:"reply"`
}

// answer tells what pkg/wechat made of it.
type answer struct {
	Accepted bool   `json:"accepted"`
	Reason   string `json:"reason,omitempty"`
	Echo     string `json:"echo,omitempty"`
	Plain    string `json:"plain,omitempty"`
	Sealed   string `json:"sealed,omitempty"`
}

func main() {
	if err := loop(); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

func loop() error {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 4<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return err
		}
		a, err := handle(r)
		if err != nil {
			return err
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return in.Err()
}

// handle returns an error for a broken check, and a refusal as an answer.
func handle(r request) (answer, error) {
	v, err := wechat.NewVerifier(wechat.Credentials{AppID: r.AppID, Token: r.Token, EncodingAESKey: r.EncodingAESKey, Mode: r.Mode})
	if err != nil {
		return answer{}, err
	}
	q, err := wechat.ParseQuery(r.Query)
	if err != nil {
		return refused(err)
	}
	if r.Body == "" {
		echo, err := v.CheckURL(q)
		if err != nil {
			return refused(err)
		}
		return answer{Accepted: true, Echo: echo}, nil
	}
	opened, err := v.Open(q, []byte(r.Body))
	if err != nil {
		return refused(err)
	}
	a := answer{Accepted: true, Plain: string(opened.Plain)}
	if r.Reply != "" {
		sealed, err := v.Seal(opened, []byte(r.Reply), "1893456002", "190283746")
		if err != nil {
			return answer{}, err
		}
		a.Sealed = string(sealed)
	}
	return a, nil
}

func refused(err error) (answer, error) {
	var r *wechat.Refusal
	if !errors.As(err, &r) {
		return answer{}, err
	}
	return answer{Reason: string(r.Reason)}, nil
}
