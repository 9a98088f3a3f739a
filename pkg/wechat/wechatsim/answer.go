package wechatsim

import (
	"encoding/xml"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tidegate/pkg/wechat"
)

// maxAnswer bounds a server's answer to a delivery; a passive reply is far below.
const maxAnswer = 64 << 10

// passiveReply is what a strict reader sees of a passive reply.
type passiveReply struct {
	XMLName      xml.Name `xml:"xml"`
	ToUserName   string   `xml:"ToUserName"`
	FromUserName string   `xml:"FromUserName"`
	CreateTime   string   `xml:"CreateTime"`
	MsgType      string   `xml:"MsgType"`
	Content      *string  `xml:"Content"`
	Image        *mediaID `xml:"Image"`
	Voice        *mediaID `xml:"Voice"`
	Video        *mediaID `xml:"Video"`
	Music        *struct {
		ThumbMediaID string `xml:"ThumbMediaId"`
	} `xml:"Music"`
	ArticleCount string `xml:"ArticleCount"`
	Articles     *struct {
		Items []struct {
			Title       string `xml:"Title"`
			Description string `xml:"Description"`
			URL         string `xml:"Url"`
		} `xml:"item"`
	} `xml:"Articles"`

	Encrypt      string `xml:"Encrypt"`
	MsgSignature string `xml:"MsgSignature"`
	TimeStamp    string `xml:"TimeStamp"`
	Nonce        string `xml:"Nonce"`
}

type mediaID struct {
	MediaID string `xml:"MediaId"`
}

// answerTo judges the body of a 200 answer to a delivery of stim. The text of a
// passive reply is returned for the journal.
func (s sealer) answerTo(stim Stimulus, body []byte) (judged, shown string, err error) {
	switch {
	case len(body) == 0:
		return JudgedEmpty, "", nil
	case string(body) == "success":
		return JudgedSuccess, "", nil
	case len(body) > maxAnswer:
		return JudgedIllegal, "", fmt.Errorf("answer longer than %d bytes", maxAnswer)
	}
	reply, err := s.open(body)
	if err != nil {
		return JudgedIllegal, "", err
	}
	if !stim.answerable() {
		return JudgedIllegal, "", fmt.Errorf("a passive reply to %s, which takes only success or an empty body", stim.what())
	}
	if reply.ToUserName != stim.OpenID || reply.FromUserName != s.ghID {
		return JudgedIllegal, "", errors.New("passive reply: ToUserName must be the user's openid and FromUserName the account's gh_ id")
	}
	if _, err := strconv.ParseInt(reply.CreateTime, 10, 64); err != nil {
		return JudgedIllegal, "", errors.New("passive reply: CreateTime is not a number")
	}
	shown, err = reply.shown(stim.Event == "")
	if err != nil {
		return JudgedIllegal, "", fmt.Errorf("passive reply: %w", err)
	}
	return JudgedPassive, shown, nil
}

// open reads the reply and, where the mode has it, takes it out of its envelope.
func (s sealer) open(body []byte) (*passiveReply, error) {
	outer, err := readReply(body)
	if err != nil {
		return nil, err
	}
	if outer.Encrypt == "" {
		if s.mode == ModeSafe {
			return nil, errors.New("passive reply: safe mode wants it encrypted")
		}
		return outer, nil
	}
	if s.mode == ModePlain {
		return nil, errors.New("passive reply: encrypted, but the account is in plain mode")
	}
	if wechat.Signature(s.token, outer.TimeStamp, outer.Nonce, outer.Encrypt) != outer.MsgSignature {
		return nil, errors.New("passive reply: MsgSignature does not match")
	}
	plain, err := wechat.Decrypt(s.key, s.appID, outer.Encrypt)
	if err != nil {
		return nil, fmt.Errorf("passive reply: %w", err)
	}
	return readReply(plain)
}

func readReply(body []byte) (*passiveReply, error) {
	var r passiveReply
	if err := xml.Unmarshal(body, &r); err != nil {
		return nil, errors.New("neither success, empty, nor a passive reply in XML")
	}
	return &r, nil
}

// shown is the text that the user sees, or why the reply is not well formed.
func (r *passiveReply) shown(toMessage bool) (string, error) {
	switch r.MsgType {
	case "text":
		if r.Content == nil || *r.Content == "" {
			return "", errors.New("text without Content")
		}
		return *r.Content, nil
	case "image":
		return r.Image.shown()
	case "voice":
		return r.Voice.shown()
	case "video":
		return r.Video.shown()
	case "music":
		if r.Music == nil || r.Music.ThumbMediaID == "" {
			return "", errors.New("music without ThumbMediaId")
		}
		return r.Music.ThumbMediaID, nil
	case "news":
		return r.news(toMessage)
	case "transfer_customer_service":
		return "", nil
	}
	return "", fmt.Errorf("MsgType %q is not a reply", r.MsgType)
}

func (m *mediaID) shown() (string, error) {
	if m == nil || m.MediaID == "" {
		return "", errors.New("media without MediaId")
	}
	return m.MediaID, nil
}

// news takes one article in answer to a user's message and up to eight otherwise.
func (r *passiveReply) news(toMessage bool) (string, error) {
	most := 8
	if toMessage {
		most = 1
	}
	n, err := strconv.Atoi(strings.TrimSpace(r.ArticleCount))
	if err != nil || r.Articles == nil || n != len(r.Articles.Items) {
		return "", errors.New("ArticleCount does not match the articles")
	}
	if n < 1 || n > most {
		return "", fmt.Errorf("%d articles, allowed are 1 to %d", n, most)
	}
	var parts []string
	for _, a := range r.Articles.Items {
		parts = append(parts, a.Title, a.Description, a.URL)
	}
	return strings.Join(parts, "\n"), nil
}
