"""Bottom-up attention (BUTD): the Visual Genome Faster R-CNN whose regions most VSE models were trained on.

Anderson et al., "Bottom-Up and Top-Down Attention for Image Captioning and Visual Question Answering", CVPR 2018.
"""
